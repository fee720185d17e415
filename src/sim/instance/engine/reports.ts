/** What an engine of the real scheduler and manager says of itself. */

import type { SchedulerCounters } from '../../../runtime/batching/index.ts';
import { type KVManager, tierName } from '../../../runtime/index.ts';
import type { Flights } from '../../driver/index.ts';
import type { EngineCounters, EngineTraffic, TierReport } from './engine.ts';

const HBM = 0;

export function countersOf(manager: KVManager, scheduler: Readonly<SchedulerCounters>): EngineCounters {
  const { openedBlocks, preemptions, hitBlocks } = scheduler;
  const { hits: found, offloads, reloads: byTier, thrashed } = manager.counters;
  const hits: number[] = [0];
  let lower = 0;
  let reloads = byTier[HBM];
  for (let tier = HBM + 1; tier < found.length; tier++) {
    hits.push(found[tier]);
    lower += found[tier];
    reloads += byTier[tier];
  }
  // what was matched in a lower tier is a hit there; the scheduler counts what it admitted
  hits[HBM] = Math.max(0, hitBlocks - lower);
  const thrashing = reloads === 0 ? 0 : thrashed / reloads;
  return { hits, openedBlocks, preemptions, offloads, reloads, thrashing };
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
