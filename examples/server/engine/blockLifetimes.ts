/**
 * How long blocks stay in HBM, from when requests can find one there until they cannot; how long no request had used
 * it by then; and how long it is from one use of a block to the next, wherever it lies.
 */

import type { KVRuntime } from '../../../src/index.ts'; // in your project: 'tierkv'
import type { EngineCounters } from './engineCounters.ts';

/** Events that may wait to be read. The runtime keeps as many that were read, so few keep little memory. */
const capacity = 1024;
/** Blocks whose last use is remembered, beside the blocks that are in HBM. */
const rememberedMost = 16_384;

/** Goes on until the runtime closes. */
export async function watchLifetimes(kv: KVRuntime, counters: EngineCounters): Promise<void> {
  const { blockLifetime, blockIdleBeforeEvict, blockReuseGap } = counters;
  const storedMs = new Map<string, number>();
  /** The block used longest ago first. */
  const usedMs = new Map<string, number>();
  let last = -1;
  for await (const event of kv.events({ capacity, uses: true })) {
    const now = performance.now();
    const secondsSince = (times: Map<string, number>): number =>
      (now - (times.get(event.key) ?? Number.NaN)) / 1000;
    if (event.type === 'used') {
      blockReuseGap.observe(secondsSince(usedMs));
      usedMs.delete(event.key);
      usedMs.set(event.key, now);
      if (usedMs.size > rememberedMost) usedMs.delete(usedMs.keys().next().value ?? '');
      continue;
    }
    const isGap = last !== -1 && event.number !== last + 1;
    if (isGap) storedMs.clear(); // what was removed meanwhile is not known
    last = event.number;
    if (event.tier !== 'hbm') continue;
    if (event.type === 'stored') storedMs.set(event.key, now);
    else {
      blockLifetime.observe(secondsSince(storedMs));
      blockIdleBeforeEvict.observe(secondsSince(usedMs));
      storedMs.delete(event.key);
    }
  }
}
