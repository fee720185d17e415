/**
 * Anomalies of seven kinds, found while a run goes on. Each is kept by its place (an instance, a class) with its count
 * and the first requests that it affects; for oscillating replicas, the requests that waited longest.
 */

import type { BlockKeys } from '../../../runtime/keys/keyChain.ts';
import type { ScaleChange } from '../../../sim/cluster/scaling.ts';
import type { Simulation } from '../../../sim/cluster/simulation.ts';
import type { RoutingDecision } from '../../../sim/control/policy.ts';
import type { SimRequest } from '../../../sim/instance/simRequest.ts';
import { classOf, meetsTargets, type TargetsByClass } from '../../../sim/metrics/statistics.ts';

/** Preemptions of one instance that are a storm, if they fall within `STORM_US` microseconds. */
const STORM_PREEMPTIONS = 8;
const STORM_US = 1_000_000;
/** Hand-offs that wait for one decode instance. */
const BACKPRESSURE_REQUESTS = 8;
/** Kinds that count blocks or times instead of requests. */
const countedBeside: ReadonlySet<AnomalyType> = new Set([
  'cache_thrashing',
  'scale_oscillation',
  'pd_backpressure',
]);

interface WatchEntry {
  readonly type: AnomalyType;
  readonly timeUs: number;
  readonly requests: Set<string>;
  count: number;
  /** Sum of the values that were counted. */
  sum: number;
}

export class AnomalyWatch {
  #simulation: Simulation | undefined;
  readonly #entries = new Map<string, WatchEntry>();
  readonly #scores = new Map<number, number>();
  /** Requests that wait at each instance, by row, in the order in which they were sent. */
  readonly #waiting: Map<number, SimRequest>[] = [];
  readonly #preemptions: number[][] = [];
  /** Instances whose storm is under way. */
  readonly #storms = new Set<number>();
  readonly #oscillations = new Oscillations();
  /** Ids of requests by what their blocks are looked up under. */
  readonly #idOf = new WeakMap<BlockKeys, string>();
  readonly #pressed = new Set<number>();

  attach(simulation: Simulation): void {
    this.#simulation = simulation;
  }

  #note(type: AnomalyType, where: string, timeUs: number, request: string, count = 1, sum = 0): void {
    const key = `${type} ${where}`;
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = { type, timeUs, requests: new Set(), count: 0, sum: 0 };
      this.#entries.set(key, entry);
    }
    entry.count += count;
    entry.sum += sum;
    const { requests } = entry;
    if (request !== '' && (requests.size < EXAMPLES || countedBeside.has(type))) requests.add(request);
  }

  prioritised({ number }: SimRequest, score: number): void {
    this.#scores.set(number, score);
  }

  routed(request: SimRequest, { target, prefillInstance }: RoutingDecision): void {
    const at = prefillInstance === -1 ? target : prefillInstance;
    this.#waitingOn(at).set(request.number, request);
    this.#oscillations.sent(request.number, target);
    this.#oscillations.sent(request.number, at);
    this.#idOf.set(request.keys, request.id);
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
    const taken = this.#oscillations.scaled(change);
    if (taken === undefined) return;
    this.#note('scale_oscillation', change.configId, taken.timeUs, '', 1, change.timeUs - taken.timeUs);
  }

  /**
   * @param thrashed blocks that came back soon after they had gone down
   * @param thrashedFor keys of the requests that they came back for
   */
  stepped(instance: number, timeUs: number, thrashed: number, thrashedFor: readonly BlockKeys[]): void {
    const where = `instance ${instance}`;
    if (thrashed > 0) this.#note('cache_thrashing', where, timeUs, '', thrashed);
    for (const keys of thrashedFor) {
      this.#note('cache_thrashing', where, timeUs, this.#idOf.get(keys) ?? '', 0);
    }
    const queue = this.#simulation?.handoffs.queueOf(instance) ?? [];
    if (queue.length < BACKPRESSURE_REQUESTS) {
      this.#pressed.delete(instance);
      return;
    }
    const begun = this.#pressed.has(instance) ? 0 : 1;
    this.#pressed.add(instance);
    this.#note('pd_backpressure', where, timeUs, '', begun);
    for (const { request } of queue) this.#note('pd_backpressure', where, timeUs, request.id, 0);
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
      const { type, timeUs, count } = entry;
      const where = key.slice(type.length + 1);
      if (type === 'scale_oscillation') {
        const rows = this.#oscillations.requestsOf(where, simulation);
        for (const row of rows) entry.requests.add(table.idOf(row));
      }
      const concerned = countedBeside.has(type) ? entry.requests.size : count;
      const severity = severityOf(concerned, table.size);
      const requests = [...entry.requests].slice(0, EXAMPLES);
      return { type, timeUs, description: describe(entry, where), requests, count, concerned, severity };
    });
    const place = (type: AnomalyType): number => anomalyTypes.indexOf(type);
    return all.sort((a, b) => place(a.type) - place(b.type) || a.timeUs - b.timeUs);
  }
}

function describe({ type, count, sum, requests }: WatchEntry, where: string): string {
  switch (type) {
    case 'priority_inversion':
      return `${where}: ${count} requests joined the batch before ${sum} more urgent ones that waited there`;
    case 'slo_violation':
      return `${where}: ${count} requests missed their targets`;
    case 'cache_thrashing':
      return (
        `${where}: ${count} blocks were reloaded soon after they were offloaded, for ` +
        `${requests.size} requests`
      );
    case 'shadow_divergence':
      return (
        `the router ${where} cached than there was for ${count} requests, by ` +
        `${(sum / count).toFixed(0)} blocks on average`
      );
    case 'scale_oscillation':
      return (
        `${where}: ${count} changes of the replicas were taken back after ` +
        `${(sum / count / 1e6).toFixed(0)} s on average, with ${requests.size} requests in between`
      );
    case 'pd_backpressure':
      return (
        `${where}: hand-offs piled up ${count} times, ${BACKPRESSURE_REQUESTS} and more waiting, of ` +
        `${requests.size} requests`
      );
    case 'preemption_storm':
      return `${where}: ${count} preemptions in bursts of ${STORM_PREEMPTIONS} and more a second`;
  }
}

// The anomalies of a run, in seven kinds.

export const anomalyTypes = [
  'priority_inversion',
  'slo_violation',
  'cache_thrashing',
  'shadow_divergence',
  'scale_oscillation',
  'pd_backpressure',
  'preemption_storm',
] as const;
export type AnomalyType = (typeof anomalyTypes)[number];

export const severities = ['low', 'medium', 'high'] as const;
type Severity = (typeof severities)[number];

export interface Anomaly {
  readonly type: AnomalyType;
  /** When it began, in simulated microseconds. */
  readonly timeUs: number;
  readonly description: string;
  /** Ids of requests that it affects, at most five. */
  readonly requests: readonly string[];
  /** How often it happened. */
  readonly count: number;
  /** Number of requests that it affects. */
  readonly concerned: number;
  readonly severity: Severity;
}

/** Requests that are named for one anomaly. */
const EXAMPLES = 5;

/** Severity by the share of requests that it affects: high above a tenth, medium above a fiftieth. */
function severityOf(concerned: number, requests: number): Severity {
  if (concerned * 10 > requests) return 'high';
  return concerned * 50 > requests ? 'medium' : 'low';
}

// Changes of replicas that are taken back soon, and the requests in between. A request counts if it arrived
// between the two changes and was sent to an instance of that configuration.

/** A change of replicas that is taken back within so long is an oscillation. */
const OSCILLATION_US = 120_000_000;

interface Window {
  readonly fromUs: number;
  readonly toUs: number;
}

class Oscillations {
  /** The last change of replicas of each configuration. */
  readonly #last = new Map<string, ScaleChange>();
  readonly #windows = new Map<string, Window[]>();
  /** Instances that each request was sent to, by its row. */
  readonly #sentTo = new Map<number, number[]>();

  /** @returns the change that this one takes back, if it does so soon */
  scaled(change: ScaleChange): ScaleChange | undefined {
    const { configId, action, timeUs } = change;
    const last = this.#last.get(configId);
    this.#last.set(configId, change);
    if (last === undefined || last.action === action) return undefined;
    if (timeUs - last.timeUs > OSCILLATION_US) return undefined;
    const windows = this.#windows.get(configId) ?? [];
    windows.push({ fromUs: last.timeUs, toUs: timeUs });
    this.#windows.set(configId, windows);
    return last;
  }

  sent(row: number, instance: number): void {
    const instances = this.#sentTo.get(row) ?? [];
    if (!instances.includes(instance)) instances.push(instance);
    this.#sentTo.set(row, instances);
  }

  /** Rows of the requests in between, by their wait for the first token, the longest first. */
  requestsOf(configId: string, { table, instances }: Simulation): number[] {
    const windows = this.#windows.get(configId) ?? [];
    const rows: number[] = [];
    for (const [row, sentTo] of this.#sentTo) {
      const arrivalUs = table.arrivalUs[row];
      if (!windows.some(({ fromUs, toUs }) => arrivalUs >= fromUs && arrivalUs < toUs)) continue;
      if (sentTo.some((instance) => instances[instance]?.configId === configId)) rows.push(row);
    }
    const waited = (row: number): number =>
      table.firstTokenUs[row] === -1 ? Infinity : table.firstTokenUs[row];
    return rows.sort((a, b) => (waited(a) === waited(b) ? a - b : waited(b) - waited(a)));
  }
}
