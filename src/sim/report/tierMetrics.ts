/** What went on in the tiers of a run's instances, summed up over the instances. */

import type { Instance, LinkMetrics, TierMetrics } from '../instance/index.ts';

export interface TransferMetrics {
  readonly tiers: readonly TierMetrics[];
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
  /** Blocks that requests came to hold: found, or opened to be computed. Those that a hand-off brought are neither. */
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
  const tiers: TierMetrics[] = [];
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

function addTiers(a: TierMetrics, b: TierMetrics): TierMetrics {
  return {
    tier: a.tier,
    capacityBlocks: a.capacityBlocks + b.capacityBlocks,
    hits: a.hits + b.hits,
    evictions: a.evictions + b.evictions,
    writtenBytes: a.writtenBytes + b.writtenBytes,
    readBytes: a.readBytes + b.readBytes,
  };
}
