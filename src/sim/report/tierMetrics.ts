/**
 * What went on in the tiers of a run's instances, summed over the instances: hits, transfers, how full the
 * tiers were, and how evenly requests were spread.
 */

import { requireShapes } from '../../runtime/options.ts';
import type { SimulationObserver, StepSpan } from '../cluster/parts.ts';
import type { RoutingDecision } from '../control/policy.ts';
import type { InstanceTierMetrics, LinkMetrics } from '../instance/engine.ts';
import type { Instance } from '../instance/instance.ts';
import type { SimRequest } from '../instance/simRequest.ts';

export interface TransferMetrics {
  readonly tiers: readonly InstanceTierMetrics[];
  readonly links: readonly LinkMetrics[];
  /** Blocks that went down from HBM, and that came back to it. */
  readonly offloads: number;
  readonly reloads: number;
  /** Reloads soon after the block's own offload. */
  readonly thrashed: number;
  /** Time that steps waited for transfers billed to them. */
  readonly stepTransferUs: number;
}

/** What requests that joined a batch found, over all instances: hits by tier and misses are the lookups. */
export interface CacheMetrics {
  /** Blocks that requests came to hold: found, or opened to be computed. Blocks that a hand-off brought are not counted. */
  readonly lookups: number;
  readonly hits: number;
  readonly misses: number;
  readonly hitsByTier: Readonly<Record<string, number>>;
  /** Hits by lookups; 0 before any. */
  readonly hitRate: number;
  /** Reloads soon after the block's own offload, by reloads; 0 before any. */
  readonly thrashingRate: number;
}

export function cacheMetrics(instances: readonly Instance[]): CacheMetrics {
  requireShapes({ instances }, { instances: [{ number: 'number', id: 'text' }] });
  const { tiers, reloads, thrashed } = transferMetrics(instances);
  const hits = tiers.reduce((sum, tier) => sum + tier.hits, 0);
  const misses = instances.reduce((sum, { engine }) => sum + engine.counters.openedBlocks, 0);
  const lookups = hits + misses;
  return {
    lookups,
    hits,
    misses,
    hitsByTier: Object.fromEntries(tiers.map((tier) => [tier.tier, tier.hits])),
    hitRate: lookups === 0 ? 0 : hits / lookups,
    thrashingRate: reloads === 0 ? 0 : thrashed / reloads,
  };
}

export function transferMetrics(instances: readonly Instance[]): TransferMetrics {
  requireShapes({ instances }, { instances: [{ number: 'number', id: 'text' }] });
  const tiers: InstanceTierMetrics[] = [];
  const links = new Map<string, LinkMetrics>();
  let offloads = 0;
  let reloads = 0;
  let thrashed = 0;
  let stepTransferUs = 0;
  for (const { engine, counters } of instances) {
    const traffic = engine.traffic();
    for (const [i, tier] of traffic.tiers.entries()) {
      const sum = tiers[i];
      tiers[i] = sum === undefined ? tier : addTiers(sum, tier);
    }
    for (const { link, bytes, busyUs } of traffic.links) {
      const sum = links.get(link) ?? { link, bytes: 0, busyUs: 0 };
      links.set(link, { link, bytes: sum.bytes + bytes, busyUs: sum.busyUs + busyUs });
    }
    offloads += engine.counters.offloads;
    reloads += engine.counters.reloads;
    thrashed += Math.round(engine.counters.thrashing * engine.counters.reloads);
    stepTransferUs += counters.transferUs;
  }
  return { tiers, links: [...links.values()], offloads, reloads, thrashed, stepTransferUs };
}

function addTiers(a: InstanceTierMetrics, b: InstanceTierMetrics): InstanceTierMetrics {
  return {
    tier: a.tier,
    capacityBlocks: a.capacityBlocks + b.capacityBlocks,
    hits: a.hits + b.hits,
    evictions: a.evictions + b.evictions,
    writtenBytes: a.writtenBytes + b.writtenBytes,
    readBytes: a.readBytes + b.readBytes,
  };
}

// How full the tiers are over time, sampled at steps; the samples thin out as the run grows.

export interface OccupancySample {
  readonly timeUs: number;
  /** By tier, HBM first: share in use, over all instances. */
  readonly shares: readonly number[];
  /** By tier: blocks that requests found there since the start. */
  readonly hits: readonly number[];
  /** Blocks that were opened to be computed since the start. */
  readonly openedBlocks: number;
  /** Requests outside the batches, and in them. */
  readonly waiting: number;
  readonly running: number;
}

/** Most samples that are kept. */
const SAMPLES_MAX = 2048;

export class Occupancy implements SimulationObserver {
  #samples: OccupancySample[] = [];
  #everyUs = 1000;
  #nextUs = 0;
  readonly #instances: () => readonly Instance[];

  /** @param instances all that there are when a step begins */
  constructor(instances: () => readonly Instance[]) {
    this.#instances = instances;
  }

  get samples(): readonly OccupancySample[] {
    return this.#samples;
  }

  step({ startUs }: StepSpan): void {
    if (startUs < this.#nextUs) return;
    const used: number[] = [];
    const capacity: number[] = [];
    const found: number[] = [];
    let [openedBlocks, waiting, running] = [0, 0, 0];
    for (const { engine } of this.#instances()) {
      for (const [i, { usedBlocks, capacityBlocks }] of engine.tiers().entries()) {
        used[i] = (used[i] ?? 0) + usedBlocks;
        capacity[i] = (capacity[i] ?? 0) + capacityBlocks;
      }
      const { counters } = engine;
      for (const [i, hits] of counters.hits.entries()) found[i] = (found[i] ?? 0) + hits;
      openedBlocks += counters.openedBlocks;
      waiting += engine.waitingCount;
      running += engine.runningCount;
    }
    const shares = used.map((blocks, i) => blocks / capacity[i]);
    this.#samples.push({ timeUs: startUs, shares, hits: found, openedBlocks, waiting, running });
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
  /** By instance number: requests that were routed there, as a whole or for one of their parts. */
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
