/** How well the cache does: rates over all that happened so far. A rate of nothing is 0. */

import type { SchedulerCounters } from '../batching/core.ts';
import type { KVManager } from '../manager/kvManager.ts';
import { type TierName, tierName } from '../tier/tier.ts';

export interface TierMetrics {
  readonly tier: TierName;
  /** Share of the blocks looked up that were found here, the fastest copy counting. */
  readonly hitRate: number;
  readonly evictedBlocks: number;
  /** Blocks sent from here to a lower tier. */
  readonly demotedBlocks: number;
  /** Blocks brought from here to HBM. */
  readonly reloadedBlocks: number;
  /** Bytes of blocks that were sent here from above. */
  readonly writtenBytes: number;
  /** Bytes of blocks that were brought up from here. */
  readonly readBytes: number;
}

export interface KVMetrics {
  /** Blocks that requests asked for. */
  readonly lookups: number;
  /** Share of these that some tier had, or that were on their way. */
  readonly hitRate: number;
  /** Fastest first. */
  readonly tiers: readonly TierMetrics[];
  /** Bytes moved between tiers, both ways. */
  readonly migratedBytes: number;
  /** Blocks that left HBM and stayed in the cache. */
  readonly offloads: number;
  /** Share of these that were brought back within the thrashing window. */
  readonly thrashingRate: number;
  readonly preemptions: number;
  /** Preemptions a request that has ended; null without the counters of a scheduler. */
  readonly preemptionRate: number | null;
}

/** @param scheduler counters of the scheduler on this manager, where there is one */
export function kvMetrics(manager: KVManager, scheduler?: Readonly<SchedulerCounters>): KVMetrics {
  const c = manager.counters;
  const hits = c.hits.reduce((sum, count) => sum + count, 0);
  const lookups = hits + c.misses;
  const tiers = manager.tiers.map(
    (tier, position): TierMetrics => ({
      tier: tierName(tier),
      hitRate: share(c.hits[position], lookups),
      evictedBlocks: c.evictions[position],
      demotedBlocks: c.demotions[position],
      reloadedBlocks: c.reloads[position],
      writtenBytes: c.writtenBytes[position],
      readBytes: c.readBytes[position],
    }),
  );
  return {
    lookups,
    hitRate: share(hits, lookups),
    tiers,
    migratedBytes: tiers.reduce((sum, { writtenBytes, readBytes }) => sum + writtenBytes + readBytes, 0),
    offloads: c.offloads,
    thrashingRate: share(c.thrashed, c.offloads),
    preemptions: c.preemptions,
    preemptionRate: scheduler === undefined ? null : share(scheduler.preemptions, scheduler.finished),
  };
}

function share(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}
