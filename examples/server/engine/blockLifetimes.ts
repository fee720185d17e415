/** How long blocks stay in HBM: from when others can find one there until nobody can. */

import type { KVRuntime } from '../../../src/index.ts'; // in your project: 'tierkv'
import type { Histogram } from './engineCounters.ts';

/** Goes on until the runtime closes. */
export async function watchLifetimes(kv: KVRuntime, lifetimes: Histogram): Promise<void> {
  const storedMs = new Map<string, number>();
  for await (const event of kv.events()) {
    if (event.tier !== 'hbm') continue;
    const now = performance.now();
    if (event.type === 'stored') storedMs.set(event.key, now);
    else {
      lifetimes.observe((now - (storedMs.get(event.key) ?? Number.NaN)) / 1000);
      storedMs.delete(event.key);
    }
  }
}
