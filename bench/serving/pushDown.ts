/** Sends what a runtime has cached down, so that the next request finds it in the tier that is measured. */

import type { KVRuntime } from '../../src/index.ts';

/**
 * Empties the cached blocks of the `levels` fastest tiers into the tier below each.
 * @throws where a tier keeps blocks because no tier below takes them
 */
export async function pushDown(kv: KVRuntime, levels: number): Promise<void> {
  for (let tier = 0; tier < levels; tier++) {
    for (let before = Number.POSITIVE_INFINITY; ; ) {
      const { cachedBytes } = kv.manager.inspect.usage(tier);
      if (cachedBytes === 0) break;
      if (cachedBytes >= before)
        throw new Error(`tier ${tier} keeps ${cachedBytes} bytes: no tier below takes them`);
      before = cachedBytes;
      kv.manager.evict(tier, 64, kv.nowUs());
      await kv.idle();
    }
  }
}
