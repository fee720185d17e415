/**
 * Figures of the tiers of a run's instances, summed over the instances: hits, transfers, how full the tiers were, and
 * how evenly requests were spread.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { thrashingRateOf } from '../../runtime/outputs.ts';
import { type TierName, tierNames } from '../../runtime/tier/tier.ts';
import type { SimulationObserver, StepSpan } from '../cluster/parts.ts';
import type { RoutingDecision } from '../control/policy.ts';
import type { InstanceTierMetrics, LinkMetrics, TierReport } from '../instance/engine.ts';
import type { Instance } from '../instance/instance.ts';
import type { SimRequest } from '../instance/simRequest.ts';
import { sharedTier } from '../links/machineTiers.ts';

interface TransferMetrics {
  readonly tiers: readonly InstanceTierMetrics[];
  readonly links: readonly LinkMetrics[];
  /** Blocks sent from a tier to a lower one, and sent up to the top one. */
  readonly sent: number;
  readonly reloads: number;
  /** Reloads of blocks that had left the top tier soon before. */
  readonly thrashed: number;
  /** Time that steps waited for transfers billed to them. */
  readonly stepTransferUs: number;
}

/** Lookups of requests that joined a batch, over all instances: hits by tier, and misses. */
export interface CacheMetrics {
  /** Blocks that requests came to hold: found, or opened to be computed. Blocks that a hand-off brought are not counted. */
  readonly lookups: number;
  readonly hits: number;
  readonly misses: number;
  readonly hitsByTier: Readonly<Record<string, number>>;
  /** Hits by lookups; 0 before any. */
  readonly hitRate: number;
  /** `thrashingRateOf` over all instances. */
  readonly thrashingRate: number;
}

export function cacheMetrics(instances: readonly Instance[]): CacheMetrics {
  checkInputs({ instances }, { instances: is.list(is.fields({ number: is.number(), id: is.text() })) });
  const { tiers } = transferMetrics(instances);
  const offloads = instances.reduce((sum, { engine }) => sum + engine.counters.offloads, 0);
  const thrashed = instances.reduce((sum, { engine }) => sum + engine.counters.thrashed, 0);
  const hits = tiers.reduce((sum, tier) => sum + tier.hits, 0);
  const misses = instances.reduce((sum, { engine }) => sum + engine.counters.openedBlocks, 0);
  const lookups = hits + misses;
  return {
    lookups,
    hits,
    misses,
    hitsByTier: Object.fromEntries(tiers.map((tier) => [tier.tier, tier.hits])),
    hitRate: lookups === 0 ? 0 : hits / lookups,
    thrashingRate: thrashingRateOf({ thrashed, offloads }),
  };
}

export function transferMetrics(instances: readonly Instance[]): TransferMetrics {
  checkInputs({ instances }, { instances: is.list(is.fields({ number: is.number(), id: is.text() })) });
  const sums = new Map<TierName, InstanceTierMetrics>();
  const links = new Map<string, LinkMetrics>();
  let sent = 0;
  let reloads = 0;
  let thrashed = 0;
  let stepTransferUs = 0;
  for (const { engine, counters } of instances) {
    const traffic = engine.traffic();
    for (const tier of traffic.tiers) {
      const sum = sums.get(tier.tier);
      sums.set(tier.tier, sum === undefined ? tier : addTiers(sum, tier));
    }
    for (const { link, bytes, busyUs } of traffic.links) {
      const sum = links.get(link) ?? { link, bytes: 0, busyUs: 0 };
      links.set(link, { link, bytes: sum.bytes + bytes, busyUs: sum.busyUs + busyUs });
    }
    sent += engine.counters.sent;
    reloads += engine.counters.reloads;
    thrashed += engine.counters.thrashed;
    stepTransferUs += counters.transferUs;
  }
  const tiers = tierNames.flatMap((name) => sums.get(name) ?? []);
  return { tiers, links: [...links.values()], sent, reloads, thrashed, stepTransferUs };
}

function addTiers(a: InstanceTierMetrics, b: InstanceTierMetrics): InstanceTierMetrics {
  const isShared = a.tier === sharedTier; // all of them have the same one
  return {
    tier: a.tier,
    capacityBlocks: isShared
      ? Math.max(a.capacityBlocks, b.capacityBlocks)
      : a.capacityBlocks + b.capacityBlocks,
    hits: a.hits + b.hits,
    evictions: a.evictions + b.evictions,
    writtenBytes: a.writtenBytes + b.writtenBytes,
    readBytes: a.readBytes + b.readBytes,
  };
}

/** Names of the tiers of instances, from fast to slow: not all instances need have the same ones. */
export function tierNamesOf(instances: readonly Instance[]): TierName[] {
  const there = new Set(instances.flatMap(({ engine }) => engine.tiers().map(({ tier }) => tier)));
  return tierNames.filter((name) => there.has(name));
}

/** The share of each tier that is in use, over all instances. */
export function tierShares(instances: readonly (readonly TierReport[])[]): ReadonlyMap<TierName, number> {
  const sums = new Map<TierName, { used: number; capacity: number }>();
  for (const { tier, usedBlocks, capacityBlocks, sharedFill } of instances.flat()) {
    const sum = sums.get(tier) ?? { used: 0, capacity: 0 };
    sums.set(tier, sum);
    sum.used += sharedFill === undefined ? usedBlocks : sharedFill * capacityBlocks;
    sum.capacity += capacityBlocks;
  }
  return new Map([...sums].map(([tier, { used, capacity }]) => [tier, used / Math.max(1, capacity)]));
}

// How full the tiers are over time, sampled at steps; the samples thin out as the run grows.

/** How full the tiers were at one time, and what was found in them. */
export interface OccupancySample {
  readonly timeUs: number;
  /** Share in use of each tier, HBM first, over all instances. */
  readonly shares: readonly number[];
  /** Blocks that requests found in each tier since the start. */
  readonly hits: readonly number[];
  /** Blocks that were opened to be computed since the start. */
  readonly openedBlocks: number;
  /** Requests outside the batches, and in them. */
  readonly waiting: number;
  readonly running: number;
}

/** Most samples that are kept. */
const SAMPLES_MAX = 2048;

/** A sample by names of tiers: instances that come later may have others. */
interface NamedSample extends Omit<OccupancySample, 'shares' | 'hits'> {
  readonly shares: ReadonlyMap<TierName, number>;
  readonly hits: ReadonlyMap<TierName, number>;
}

export class Occupancy implements SimulationObserver {
  #samples: NamedSample[] = [];
  #everyUs = 1000;
  #nextUs = 0;
  readonly #instances: () => readonly Instance[];

  /** @param instances all that there are when a step begins */
  constructor(instances: () => readonly Instance[]) {
    this.#instances = instances;
  }

  /** Tiers that a sample has, from fast to slow. */
  get tiers(): readonly TierName[] {
    return tierNamesOf(this.#instances());
  }

  get samples(): readonly OccupancySample[] {
    const { tiers } = this;
    return this.#samples.map(({ shares, hits, ...sample }) => ({
      ...sample,
      shares: tiers.map((tier) => shares.get(tier) ?? 0),
      hits: tiers.map((tier) => hits.get(tier) ?? 0),
    }));
  }

  step({ startUs }: StepSpan): void {
    if (startUs < this.#nextUs) return;
    const reports: (readonly TierReport[])[] = [];
    const hits = new Map<TierName, number>();
    let [openedBlocks, waiting, running] = [0, 0, 0];
    for (const { engine } of this.#instances()) {
      const tiers = engine.tiers();
      reports.push(tiers);
      const { counters } = engine;
      for (const [i, { tier }] of tiers.entries()) hits.set(tier, (hits.get(tier) ?? 0) + counters.hits[i]);
      openedBlocks += counters.openedBlocks;
      waiting += engine.waitingCount;
      running += engine.runningCount;
    }
    const shares = tierShares(reports);
    this.#samples.push({ timeUs: startUs, shares, hits, openedBlocks, waiting, running });
    if (this.#samples.length === SAMPLES_MAX) {
      this.#samples = this.#samples.filter((_, i) => i % 2 === 0);
      this.#everyUs *= 2;
    }
    this.#nextUs = startUs + this.#everyUs;
  }
}

// How requests were spread over the instances of each pool, and a warning where one instance does most of the
// work: an idle instance costs as much as a busy one.

/** Requests for each instance below which chance alone leaves instances out. */
const REQUESTS_MIN = 4;

export class Spread implements SimulationObserver {
  readonly readsScores = false;
  /** Requests routed to each instance, by its number: whole ones or one of their parts. */
  readonly #routed: number[] = [];

  routing(_request: SimRequest, decision: RoutingDecision | null): void {
    if (decision === null) return;
    const { target, prefillInstance } = decision;
    this.#routed[target] = (this.#routed[target] ?? 0) + 1;
    if (prefillInstance !== -1) this.#routed[prefillInstance] = (this.#routed[prefillInstance] ?? 0) + 1;
  }

  /** @param scaled names of pools whose replicas come and go, and so cannot have equal shares */
  warnings(instances: readonly Instance[], scaled: ReadonlySet<string>): string[] {
    const pools = new Map<string, Instance[]>();
    for (const instance of instances) {
      if (scaled.has(instance.configId)) continue;
      // without a deployment file, pools of different roles have one name
      const name = `${instance.configId} ${instance.role}`;
      pools.set(name, [...(pools.get(name) ?? []), instance]);
    }
    return [...pools.values()].flatMap((pool) => this.#ofPool(pool));
  }

  #ofPool(pool: readonly Instance[]): string[] {
    const counts = pool.map(({ number }) => this.#routed[number] ?? 0);
    const all = counts.reduce((sum, count) => sum + count, 0);
    if (pool.length < 2 || all < REQUESTS_MIN * pool.length) return [];
    const most = Math.max(...counts);
    const idle = counts.filter((count) => count === 0).length;
    const [{ configId, role }] = pool;
    const of = `instances of ${configId}${role === 'monolithic' ? '' : ` (${role})`}`;
    const busiest = `${pool[counts.indexOf(most)].id} got ${most} of ${all} requests`;
    const remedy = 'Look at the routing policy: the weights of its scorers, and how old its signals are.';
    if (idle > 0) return [`${idle} of ${pool.length} ${of} got no request, and ${busiest}. ${remedy}`];
    // of two instances one has half or more in any case
    if (most <= all * Math.max(0.5, 1.5 / pool.length)) return [];
    return [`of ${pool.length} ${of} one took over half: ${busiest}. ${remedy}`];
  }
}
