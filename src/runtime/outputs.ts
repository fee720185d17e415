/**
 * Figures of the manager for a scheduler and an operator: what an owner may still use of each tier, and how well the
 * cache works.
 */

import type { SchedulerCounters } from './batching/core.ts';
import { requireInteger } from './errors.ts';
import * as is from './kinds.ts';
import type { Counters } from './manager/counters.ts';
import type { KVManager } from './manager/manager.ts';
import { checkInputs } from './options.ts';
import { type TierName, tierName } from './tier/tier.ts';

interface TierBudget {
  readonly tier: TierName;
  readonly capacityBytes: number;
  /** Bytes that cannot be evicted now: held by sequences, written, or on their way in. */
  readonly fixedBytes: number;
  /** Cached bytes within the quotas of other owners: not to be evicted for this one. */
  readonly protectedBytes: number;
  /**
   * Bytes that the owner could take now, by evicting everything evictable and cancelling speculative loads into HBM;
   * never negative.
   */
  readonly availableBytes: number;
  /** The same in whole units of size class 0. */
  readonly availableBlocks: number;
  /** Bytes that are the owner's now. */
  readonly ownedBytes: number;
  /** Null if it has none. */
  readonly quotaBytes: number | null;
}

/** How much of each tier an owner uses, and may use. */
export interface KVBudget {
  readonly owner: number;
  /** Fastest first. */
  readonly tiers: readonly TierBudget[];
}

/**
 * How much of each tier an owner uses, and may use. HBM counts with its landing room, which running sequences may use; lower tiers without.
 * @throws TKV_CONFIG for an unknown owner
 */
export function kvBudget(manager: KVManager, owner = 0): KVBudget {
  checkInputs(
    { manager, owner },
    { manager: is.fields({ lookup: is.func() }), owner: is.optional(is.number()) },
  );
  requireInteger('owner', owner, 0, manager.config.owners - 1);
  const tiers = manager.config.tiers.map(({ tier, shape }, position): TierBudget => {
    const { residentBytes, cachedBytes, capacityBytes: atRest } = manager.inspect.usage(position);
    const capacityBytes = position === 0 ? shape.capacityBytes : atRest;
    const fixedBytes = residentBytes - cachedBytes;
    const protectedBytes = manager.inspect.protectedBytes(owner, position);
    const speculativeBytes = position === 0 ? manager.inspect.speculativeBytes(owner) : 0;
    const availableBytes = Math.max(0, capacityBytes - fixedBytes - protectedBytes + speculativeBytes);
    return {
      tier: tierName(tier),
      capacityBytes,
      fixedBytes,
      protectedBytes,
      availableBytes,
      availableBlocks: Math.floor(availableBytes / manager.config.unitBytes[0]),
      ownedBytes: manager.inspect.ownedBytes(owner, position),
      quotaBytes: manager.inspect.quotaBytes(owner, position),
    };
  });
  return { owner, tiers };
}

// How well the cache works: rates over everything so far. A rate over nothing is 0.

interface TierMetrics {
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

/** Figures of a manager by tier, as `kvMetrics` gives them. */
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
  /** Result of `thrashingRateOf`. */
  readonly thrashingRate: number;
  readonly preemptions: number;
  /** Preemptions a request that has ended; null without the counters of a scheduler. */
  readonly preemptionRate: number | null;
}

/**
 * Figures of a manager for an operator: hit rate, use of each tier, traffic.
 * @param scheduler counters of the scheduler on this manager, where there is one
 */
export function kvMetrics(manager: KVManager, scheduler?: Readonly<SchedulerCounters>): KVMetrics {
  checkInputs({ manager }, { manager: is.fields({ lookup: is.func() }) });
  const c = manager.inspect.counters;
  const hits = c.hits.reduce((sum, count) => sum + count, 0);
  const lookups = hits + c.misses;
  const tiers = manager.inspect.tiers.map(
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
    thrashingRate: thrashingRateOf(c),
    preemptions: c.preemptions,
    preemptionRate: scheduler === undefined ? null : share(scheduler.preemptions, scheduler.finished),
  };
}

/**
 * How often blocks that left the top tier came back soon after, in every report of the project: reloads within the thrashing
 * window of the block's own offload, over offloads. 0 before any.
 */
export function thrashingRateOf({ thrashed, offloads }: Pick<Counters, 'thrashed' | 'offloads'>): number {
  return share(thrashed, offloads);
}

function share(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole;
}
