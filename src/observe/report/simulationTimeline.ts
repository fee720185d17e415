/**
 * Events of a simulation over time, gathered while it runs, in bounded memory. Nothing that it does reaches the
 * simulation.
 */

import type { TierName } from '../../runtime/tier/tier.ts';
import type { SimulationObserver, StepSpan } from '../../sim/cluster/parts.ts';
import type { ReplicaChange, ScaleChange } from '../../sim/cluster/scaling.ts';
import type { RoutingDecision } from '../../sim/control/policy.ts';
import type { Instance } from '../../sim/instance/instance.ts';
import type { SimRequest } from '../../sim/instance/simRequest.ts';
import { Status, statusNames } from '../../sim/metrics/requestTable.ts';
import { tierShares } from '../../sim/report/tierMetrics.ts';
import { type TimelineEvent, type TimelineLane, tierTitle } from './model.ts';
import { TimeBins } from './timeBins.ts';

/** Instances that are told apart; beyond that the mean and the largest stand for all. */
const INSTANCES_TOLD = 6;
/** Most events of each kind that are kept. */
const EVENTS_MOST = 400;
/** Routing decisions that are kept, the largest regret first. */
const DECISIONS_MOST = 30;

/** A routing decision whose target was not the one with the best score. */
interface RegrettedRouting {
  readonly s: number;
  readonly request: string;
  readonly chosen: number;
  readonly best: number;
  readonly regret: number;
}

export class SimulationTimeline implements SimulationObserver {
  readonly #instances: () => readonly Instance[];
  readonly #bins: TimeBins = new TimeBins();
  readonly #events: Map<TimelineEvent['kind'], TimelineEvent[]> = new Map();
  readonly #regrets: RegrettedRouting[] = [];
  #endUs = 0;
  #routed = 0;
  #worse = 0;
  /** Events that were left out. */
  leftOut = 0;
  thrashedSteps = 0;

  /** @param instances of the simulation, once it is built */
  constructor(instances: () => readonly Instance[]) {
    this.#instances = instances;
  }

  get routed(): number {
    return this.#routed;
  }

  /** Routings to an instance whose score was not the best. */
  get worse(): number {
    return this.#worse;
  }

  get regrets(): readonly RegrettedRouting[] {
    return this.#regrets;
  }

  get events(): TimelineEvent[] {
    return [...this.#events.values()].flat().sort((a, b) => a.s - b.s);
  }

  step({ instance, startUs, endUs, tokens, decodes, prefills, transferUs, thrashedFor }: StepSpan): void {
    const engine = this.#instances()[instance]?.engine;
    this.#endUs = Math.max(this.#endUs, endUs);
    this.#bins.add(`batch ${instance}`, startUs, decodes + prefills);
    this.#bins.add(`tokens ${instance}`, startUs, tokens / Math.max(1e-6, (endUs - startUs) / 1e6));
    this.#bins.add('waits', startUs, transferUs / Math.max(1, endUs - startUs));
    if (thrashedFor.length > 0) {
      this.thrashedSteps++;
      this.#event('transfer', startUs, `instance ${instance} brought back blocks that had just gone down`);
    }
    if (engine === undefined) return;
    this.#bins.add(`queue ${instance}`, startUs, engine.waitingCount);
    for (const [tier, share] of tierShares([engine.tiers()])) this.#bins.add(`tier ${tier}`, startUs, share);
    this.#bins.add('instances', startUs, this.#instances().length);
  }

  routing(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void {
    if (decision === null) {
      this.#event('anomaly', nowUs, `${request.id} found no instance`);
      return;
    }
    this.#routed++;
    const { target, scores } = decision;
    const chosen = scores.find(({ instance }) => instance === target)?.score;
    if (chosen === undefined) return;
    let best = { instance: target, score: chosen };
    for (const each of scores) if (each.score > best.score) best = each;
    const regret = best.score - chosen;
    if (regret <= 0) return;
    this.#worse++;
    this.#regrets.push({ s: nowUs / 1e6, request: request.id, chosen: target, best: best.instance, regret });
    if (this.#regrets.length <= DECISIONS_MOST) return;
    this.#regrets.sort((a, b) => b.regret - a.regret);
    this.#regrets.pop();
  }

  preempted(request: SimRequest, instance: number, nowUs: number): void {
    this.#event('anomaly', nowUs, `${request.id} gave up its blocks on instance ${instance}`);
  }

  scaled({ configId, timeUs, previousCount, newCount, reason }: ScaleChange): void {
    this.#event('scaling', timeUs, `${configId}: ${previousCount} to ${newCount} replicas, ${reason}`);
  }

  replica({ configId, replica, phase, timeUs }: ReplicaChange): void {
    this.#event('scaling', timeUs, `replica ${replica} of ${configId}: ${phase}`);
  }

  ended(request: SimRequest, status: Status, timeUs: number): void {
    this.#endUs = Math.max(this.#endUs, timeUs);
    if (status === Status.COMPLETED) return;
    this.#event('anomaly', timeUs, `${request.id}: ${statusNames[status]}`);
  }

  /** The largest mean of a bin. */
  mostOf(name: string): number {
    return this.#bins.means(name).reduce((most, [, value]) => Math.max(most, value), 0);
  }

  /** @param tiers from fast to slow @param names of the instances */
  lanes(tiers: readonly TierName[], names: readonly string[]): TimelineLane[] {
    const lanes: TimelineLane[] = [
      this.#perInstance('requests in a step', 'batch', names),
      this.#perInstance('requests that wait', 'queue', names),
      this.#perInstance('tokens a second', 'tokens', names),
      {
        name: 'tiers in use, share',
        unit: 'share',
        series: tiers.map((tier) => ({ name: tierTitle(tier), points: this.#bins.means(`tier ${tier}`) })),
      },
    ];
    const waits = this.#bins.means('waits');
    if (waits.some(([, share]) => share > 0)) {
      lanes.push({
        name: 'share of steps that waited for transfers',
        unit: 'share',
        series: [{ name: 'waits for transfers', points: waits }],
      });
    }
    const instances = this.#bins.means('instances');
    if (new Set(instances.map(([, count]) => count)).size > 1) {
      lanes.push({ name: 'instances', unit: 'count', series: [{ name: 'instances', points: instances }] });
    }
    return lanes.filter(({ series }) => series.some(({ points }) => points.length > 0));
  }

  #perInstance(name: string, of: string, names: readonly string[]): TimelineLane {
    const unit = 'count';
    if (names.length <= INSTANCES_TOLD) {
      const series = names.map((each, i) => ({ name: each, points: this.#bins.means(`${of} ${i}`) }));
      return { name, unit, series: series.filter(({ points }) => points.length > 0) };
    }
    const all = new Map<number, number[]>();
    for (let i = 0; i < names.length; i++) {
      for (const [s, value] of this.#bins.means(`${of} ${i}`)) all.set(s, [...(all.get(s) ?? []), value]);
    }
    const times = [...all.keys()].sort((a, b) => a - b);
    const pick = (act: (values: readonly number[]) => number): [number, number][] =>
      times.map((s) => [s, act(all.get(s) ?? [0])]);
    const mean = (values: readonly number[]): number =>
      values.reduce((sum, each) => sum + each, 0) / Math.max(1, values.length);
    return {
      name: `${name}, over ${names.length} instances`,
      unit,
      series: [
        { name: 'the most', points: pick((values) => Math.max(...values)) },
        { name: 'mean', points: pick(mean) },
        { name: 'the fewest', points: pick((values) => Math.min(...values)) },
      ],
    };
  }

  #event(kind: TimelineEvent['kind'], timeUs: number, what: string): void {
    const events = this.#events.get(kind) ?? [];
    this.#events.set(kind, events);
    if (events.length < EVENTS_MOST) events.push({ s: timeUs / 1e6, what, kind });
    else this.leftOut++;
  }
}
