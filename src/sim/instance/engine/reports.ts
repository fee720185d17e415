/** What an engine of the real scheduler and manager says of itself. */

import type { SchedulerCounters } from '../../../runtime/batching/index.ts';
import { invariant } from '../../../runtime/errors.ts';
import { type KVManager, tierName } from '../../../runtime/index.ts';
import type { Flights } from '../../driver/index.ts';
import type { EngineCounters, EngineTraffic, TierReport } from './engine.ts';

const HBM = 0;

/**
 * @param hits of requests that joined the batch, by tier; the manager's own also count those that looked and
 * did not join, were announced or handed off
 * @param received blocks that joined from another instance, and were found nowhere
 */
export function countersOf(
  manager: KVManager,
  scheduler: Readonly<SchedulerCounters>,
  hits: readonly number[],
  received: number,
): EngineCounters {
  const { openedBlocks, preemptions, hitBlocks } = scheduler;
  const { offloads, reloads: byTier, thrashed } = manager.counters;
  const found = hits.reduce((sum, blocks) => sum + blocks, 0);
  invariant(found + received === hitBlocks, 'each block that a request found was found in one tier');
  const reloads = byTier.reduce((sum, blocks) => sum + blocks, 0);
  const thrashing = reloads === 0 ? 0 : thrashed / reloads;
  return { hits: [...hits], openedBlocks, preemptions, offloads, reloads, thrashing };
}

export function tiersOf(manager: KVManager, blockBytes: number): TierReport[] {
  return manager.tiers.map((_, position) => {
    const { capacityBytes, residentBytes, heldBytes, cachedBytes } = manager.usage(position);
    const used = position === HBM ? heldBytes : residentBytes;
    return {
      capacityBlocks: capacityBytes / blockBytes,
      usedBlocks: used / blockBytes,
      freeBlocks: (capacityBytes - residentBytes + cachedBytes) / blockBytes,
    };
  });
}

/** @param hits by tier, as `countersOf` has them */
export function trafficOf(
  manager: KVManager,
  blockBytes: number,
  hits: readonly number[],
  flights: Flights<unknown> | null,
): EngineTraffic {
  const { evictions, writtenBytes, readBytes } = manager.counters;
  const tiers = tiersOf(manager, blockBytes).map(({ capacityBlocks }, i) => ({
    tier: tierName(manager.tiers[i]),
    capacityBlocks,
    hits: hits[i],
    evictions: evictions[i],
    writtenBytes: writtenBytes[i],
    readBytes: readBytes[i],
  }));
  const links = [...(flights?.traffic ?? [])].map(([link, sums]) => ({ link, ...sums }));
  return { tiers, links };
}
