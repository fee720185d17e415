/** Counters and gauges of a runtime as plain data, for whatever a server exports metrics with. */

import { Outcome, outcomeNames, tierName } from '../runtime/index.ts';
import type { RequestContext } from './context.ts';
import type { OpenStores } from './stores.ts';

/** Counters and gauges of a runtime, as `kv.metrics()` gives them. */
export interface RuntimeMetrics {
  /**
   * Only ever grow. Blocks unless the name says bytes; names with a dot end in a tier, an outcome or a link.
   */
  readonly counters: Readonly<Record<string, number>>;
  /** Present values. */
  readonly gauges: Readonly<Record<string, number>>;
}

export function metricsOf(
  { manager, admission, keeper, migration }: RequestContext,
  stores: OpenStores,
): RuntimeMetrics {
  const c = manager.inspect.counters;
  const tiers: readonly string[] = manager.inspect.tiers.map((tier) => tierName(tier));
  const counters: Record<string, number> = {
    misses: c.misses,
    joined: c.joined,
    offloads: c.offloads,
    dropped: c.dropped,
    demotionsFailed: c.demotionsFailed,
    demotionsSkipped: c.demotionsSkipped,
    writesDeclined: c.writesDeclined,
    thrashed: c.thrashed,
    aliases: c.aliases,
    diverged: c.diverged,
    copies: c.copies,
    lost: c.lost,
    adopted: c.adopted,
    recomputed: c.recomputed,
    refusedAllocations: c.refusedAllocations,
    preemptions: c.preemptions,
    devicesLost: keeper.losses,
  };
  const gauges: Record<string, number> = {
    sequences: manager.inspect.openSequences,
    jobsInFlight: manager.inspect.jobsInFlight,
    jobsOverdue: manager.inspect.jobsOverdue,
    requestsWaiting: admission.waiting,
    devicePresent: keeper.present ? 1 : 0,
  };
  tiers.forEach((name, position) => {
    counters[`hits.${name}`] = c.hits[position];
    counters[`evictions.${name}`] = c.evictions[position];
    counters[`demotions.${name}`] = c.demotions[position];
    counters[`reloads.${name}`] = c.reloads[position];
    counters[`promotions.${name}`] = c.promotions[position];
    counters[`writtenBytes.${name}`] = c.writtenBytes[position];
    counters[`readBytes.${name}`] = c.readBytes[position];
    const { capacityBytes, residentBytes, heldBytes, cachedBytes, leavingBytes } =
      manager.inspect.usage(position);
    Object.assign(gauges, {
      [`capacityBytes.${name}`]: capacityBytes,
      [`residentBytes.${name}`]: residentBytes,
      [`heldBytes.${name}`]: heldBytes,
      [`cachedBytes.${name}`]: cachedBytes,
      [`leavingBytes.${name}`]: leavingBytes,
    });
  });
  c.loadsFailed.forEach((count, outcome) => {
    if (outcome !== Outcome.LOADED) counters[`loadsFailed.${outcomeNames[outcome]}`] = count;
  });
  for (const [name, count] of Object.entries(migration?.migrator.getStats() ?? {})) {
    const ends = /^([a-z]+)To([A-Z][a-z]+)$/.exec(name)?.slice(1) ?? [];
    if (ends.every((tier) => tiers.includes(tier.toLowerCase()))) counters[`migrations.${name}`] = count;
  }
  for (const [link, { bytes, busySeconds }] of stores.engine.traffic()) {
    counters[`movedBytes.${link}`] = bytes;
    counters[`busySeconds.${link}`] = busySeconds;
  }
  return { counters, gauges };
}
