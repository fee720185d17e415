/** Stores of a few blocks, and requests as a scheduler admits and releases them. */

import type { StoreRequest } from '../../../src/views/kvStore.ts';
import { type KVStoreConfig, newKVStore, type TieredKVCache } from '../../../src/views/kvStore.ts';

export const tokens = (from: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => from + i);
export const request = (id: string, from: number, count: number): StoreRequest => ({
  id,
  tokens: tokens(from, count),
});

/** Admits a request as a scheduler does: look up, allocate the rest. */
export function admit(store: ReturnType<typeof newKVStore>, r: StoreRequest): boolean {
  const cached = store.getCachedBlocks(r.tokens, r.tenant);
  const admitted = store.allocateKVBlocks(r, cached.length * store.blockSize(), r.tokens.length, cached);
  store.checkIntegrity();
  return admitted;
}

export function release(store: ReturnType<typeof newKVStore>, r: StoreRequest): void {
  store.releaseKVBlocks(r);
  store.checkIntegrity();
}

export const tiered = (config: Partial<KVStoreConfig> = {}): TieredKVCache =>
  newKVStore({ hbmBlocks: 10, blockSize: 4, ddrBlocks: 20, ...config }) as TieredKVCache;
