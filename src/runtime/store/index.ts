/** The synchronous stores: one interface, one tier or several. */

import { type KVStoreConfig, resolveStoreConfig } from './config.ts';
import type { KVRequest, KVStore } from './kvStore.ts';
import { ManagedKVStore } from './managedKVStore.ts';
import { SingleTierKVStore } from './singleTierKVStore.ts';
import { TieredKVCache } from './tieredKVCache.ts';

export { type KVRequest, type KVStore, type KVStoreConfig, ManagedKVStore, SingleTierKVStore, TieredKVCache };

/**
 * The store for a configuration: the single-tier store itself where no lower tier has blocks, `TieredKVCache`
 * otherwise.
 * @throws TKV_CONFIG with the field that is wrong and the remedy
 */
export function newKVStore(config: KVStoreConfig): SingleTierKVStore | TieredKVCache {
  const resolved = resolveStoreConfig(config);
  return resolved.ddrBlocks + resolved.nvmeBlocks === 0
    ? new SingleTierKVStore(resolved)
    : new TieredKVCache(resolved);
}
