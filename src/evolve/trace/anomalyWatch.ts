/**
 * Finds anomalies while a run goes on. Each kind is kept by where it happens (an instance, a class) with its
 * count and the first requests that it hit.
 */

import type { ScaleChange, Simulation } from '../../sim/cluster/index.ts';
import type { RoutingDecision } from '../../sim/control/index.ts';
import type { SimRequest } from '../../sim/instance/index.ts';
import type { TargetsByClass } from '../../sim/report/index.ts';
import { classOf, meetsTargets } from '../fitness/index.ts';
import { type Anomaly, type AnomalyType, anomalyTypes, EXAMPLES, severityOf } from './anomaly.ts';

/** So many preemptions of one instance within so long are a storm. */
const STORM_PREEMPTIONS = 8;
const STORM_US = 1_000_000;
/** A change of replicas that is taken back within so long is an oscillation. */
const OSCILLATION_US = 120_000_000;
/** Hand-offs that wait for one decode instance. */
const BACKPRESSURE_REQUESTS = 8;

interface Entry {
  readonly type: AnomalyType;
  readonly timeUs: number;
  readonly requests: string[];
  count: number;
  /** What is added up beside the count. */
  sum: number;
}

export class AnomalyWatch {
  #simulation: Simulation | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #scores = new Map<number, number>();
  /** By instance: requests that wait there, by row, in the order in which they were sent. */
  readonly #waiting: Map<number, SimRequest>[] = [];
  readonly #preemptions: number[][] = [];
  /** Instances whose storm is under way. */
  readonly #storms = new Set<number>();
  /** By configuration: the last change of its replicas. */
  readonly #lastScale = new Map<string, ScaleChange>();
  readonly #pressed = new Set<number>();

  attach(simulation: Simulation): void {
    this.#simulation = simulation;
  }

  #note(type: AnomalyType, where: string, timeUs: number, request: string, count = 1, sum = 0): void {
    const key = `${type} ${where}`;
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = { type, timeUs, requests: [], count: 0, sum: 0 };
      this.#entries.set(key, entry);
    }
    entry.count += count;
    entry.sum += sum;
    if (request !== '' && entry.requests.length < EXAMPLES && !entry.requests.includes(request)) {
      entry.requests.push(request);
    }
  }

  prioritised({ number }: SimRequest, score: number): void {
    this.#scores.set(number, score);
  }

  routed(request: SimRequest, { target, prefillInstance }: RoutingDecision): void {
    const at = prefillInstance === -1 ? target : prefillInstance;
    this.#waitingOn(at).set(request.number, request);
  }

  #waitingOn(instance: number): Map<number, SimRequest> {
    while (this.#waiting.length <= instance) this.#waiting.push(new Map());
    return this.#waiting[instance];
  }

  /** @returns how many wait there still */
  joined(request: SimRequest, instance: number, nowUs: number): number {
    const waiting = this.#waitingOn(instance);
    waiting.delete(request.number);
    const score = this.#scores.get(request.number) ?? 0;
    let overtaken = 0;
    for (const other of waiting.values()) {
      if ((this.#scores.get(other.number) ?? 0) > score) overtaken++;
    }
    if (overtaken > 0) {
      this.#note('priority_inversion', `instance ${instance}`, nowUs, request.id, 1, overtaken);
    }
    return waiting.size;
  }

  ended({ number }: SimRequest): void {
    for (const waiting of this.#waiting) waiting.delete(number);
  }

  preempted(request: SimRequest, instance: number, nowUs: number): void {
    const times = (this.#preemptions[instance] ??= []);
    times.push(nowUs);
    while (nowUs - times[0] > STORM_US) times.shift();
    if (times.length < STORM_PREEMPTIONS) {
      this.#storms.delete(instance);
      return;
    }
    const begun = this.#storms.has(instance) ? 1 : times.length;
    this.#storms.add(instance);
    this.#note('preemption_storm', `instance ${instance}`, times[0], request.id, begun);
  }

  diverged(request: string, timeUs: number, expected: number, actual: number): void {
    const where = expected > actual ? 'expected more' : 'expected less';
    this.#note('shadow_divergence', where, timeUs, request, 1, Math.abs(expected - actual));
  }

  scaled(change: ScaleChange): void {
    const { configId, action, timeUs } = change;
    const last = this.#lastScale.get(configId);
    if (last !== undefined && last.action !== action && timeUs - last.timeUs <= OSCILLATION_US) {
      this.#note('scale_oscillation', configId, last.timeUs, '', 1, timeUs - last.timeUs);
    }
    this.#lastScale.set(configId, change);
  }

  stepped(instance: number, timeUs: number, thrashed: number): void {
    if (thrashed > 0) this.#note('cache_thrashing', `instance ${instance}`, timeUs, '', thrashed);
    const waiting = this.#simulation?.handoffs.waitingFor(instance) ?? 0;
    if (waiting < BACKPRESSURE_REQUESTS) this.#pressed.delete(instance);
    else if (!this.#pressed.has(instance)) {
      this.#pressed.add(instance);
      this.#note('pd_backpressure', `instance ${instance}`, timeUs, '', 1, waiting);
    }
  }

  /** All of the run, by kind and then by time. Called after its end. */
  found(targets: TargetsByClass): Anomaly[] {
    const simulation = this.#simulation;
    if (simulation === undefined) return [];
    const { table } = simulation;
    for (let row = 0; row < table.size; row++) {
      const name = classOf(table, row);
      if (!Object.hasOwn(targets, name) || meetsTargets(table, row, targets)) continue;
      this.#note('slo_violation', `class ${name}`, table.arrivalUs[row], table.idOf(row));
    }
    const all = [...this.#entries].map(([key, entry]): Anomaly => {
      const { type, timeUs, requests, count } = entry;
      const where = key.slice(type.length + 1);
      const severity = severityOf(count, table.size);
      return { type, timeUs, description: describe(entry, where), requests, count, severity };
    });
    const place = (type: AnomalyType): number => anomalyTypes.indexOf(type);
    return all.sort((a, b) => place(a.type) - place(b.type) || a.timeUs - b.timeUs);
  }
}

function describe({ type, count, sum }: Entry, where: string): string {
  switch (type) {
    case 'priority_inversion':
      return `${where}: ${count} requests joined the batch before ${sum} more urgent ones that waited there`;
    case 'slo_violation':
      return `${where}: ${count} requests missed their targets`;
    case 'cache_thrashing':
      return `${where}: ${count} blocks were reloaded soon after they were offloaded`;
    case 'shadow_divergence':
      return (
        `the router ${where} cached than there was for ${count} requests, by ` +
        `${(sum / count).toFixed(0)} blocks on average`
      );
    case 'scale_oscillation':
      return (
        `${where}: ${count} changes of the replicas were taken back after ` +
        `${(sum / count / 1e6).toFixed(0)} s on average`
      );
    case 'pd_backpressure':
      return `${where}: hand-offs piled up ${count} times, ${sum / count} and more waiting`;
    case 'preemption_storm':
      return `${where}: ${count} preemptions in bursts of ${STORM_PREEMPTIONS} and more a second`;
  }
}
