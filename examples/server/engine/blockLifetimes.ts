/** How long blocks stay in HBM: from when others can find one there until nobody can. */

import type { KVRuntime } from '../../../src/index.ts'; // in your project: 'tierkv'
import type { Histogram } from './engineCounters.ts';

/** Events that may wait to be read. The runtime keeps as many that were read, so few keep little memory. */
const capacity = 1024;

/** Goes on until the runtime closes. */
export async function watchLifetimes(kv: KVRuntime, lifetimes: Histogram): Promise<void> {
  const storedMs = new Map<string, number>();
  let last = -1;
  for await (const event of kv.events({ capacity })) {
    const isGap = last !== -1 && event.number !== last + 1;
    if (isGap) storedMs.clear(); // what was removed meanwhile is not known
    last = event.number;
    if (event.tier !== 'hbm') continue;
    const now = performance.now();
    if (event.type === 'stored') storedMs.set(event.key, now);
    else {
      lifetimes.observe((now - (storedMs.get(event.key) ?? Number.NaN)) / 1000);
      storedMs.delete(event.key);
    }
  }
}
