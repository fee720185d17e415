/** A store with lower tiers: what goes down, what comes back, and what that does to its figures. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { newKVStore, SingleTierKVStore, TieredKVCache } from '../../../src/views/kvStore.ts';
import { admit, release, request, tiered } from './stores.ts';

describe('without a lower tier', () => {
  it('the store is the single-tier store itself', () => {
    expect(newKVStore({ hbmBlocks: 4 })).toBeInstanceOf(SingleTierKVStore);
    expect(newKVStore({ hbmBlocks: 4, ddrBlocks: 4 })).toBeInstanceOf(TieredKVCache);
    expect(newKVStore({ hbmBlocks: 4, nvmeBlocks: 4 })).toBeInstanceOf(TieredKVCache);
  });

  it('every setting of the transfer leaves its results identical', () => {
    const operation = fc.record({
      id: fc.nat(4),
      from: fc.nat(6),
      blocks: fc.integer({ min: 1, max: 4 }),
      drop: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 60 }), (operations) => {
        const plain = newKVStore({ hbmBlocks: 8, blockSize: 4 });
        const configured = newKVStore({
          hbmBlocks: 8,
          blockSize: 4,
          offloadThreshold: 0.1,
          transferBandwidth: 3,
          transferBaseLatency: 50,
        });
        for (const { id, from, blocks, drop } of operations) {
          const r = request(`r${id}`, from * 100, blocks * 4 + 1);
          for (const store of [plain, configured]) if (drop) release(store, r);
          if (drop) continue;
          expect(admit(configured, r)).toBe(admit(plain, r));
          expect(configured.getCachedBlocks(r.tokens)).toEqual(plain.getCachedBlocks(r.tokens));
          expect(configured.usedBlocks()).toBe(plain.usedBlocks());
          expect(configured.cacheHitRate()).toBe(plain.cacheHitRate());
          expect(configured.pendingTransferLatency()).toBe(0);
        }
      }),
    );
  });
});

describe('offload after a release', () => {
  it('moves the least recently used cached blocks down until HBM is at the threshold', () => {
    const store = tiered({ offloadThreshold: 0.5 });
    const [a, b] = [request('a', 0, 16), request('b', 1000, 16)];
    admit(store, a);
    admit(store, b);
    release(store, a);
    expect(store.offloadCount()).toBe(3);
    release(store, b);
    expect(store.tierUsage(0).residentBytes).toBe(5);
    expect(store.tierUsage(1).residentBytes).toBe(3);
    expect(store.getCachedBlocks(a.tokens)).toHaveLength(4);
    expect(store.getCachedBlocks(b.tokens)).toHaveLength(4);
  });

  it('counts cached blocks towards the threshold, not only blocks in use', () => {
    const store = tiered({ offloadThreshold: 0.3 });
    const a = request('a', 0, 32);
    admit(store, a);
    release(store, a);
    expect(store.usedBlocks()).toBe(0);
    expect(store.tierUsage(0).cachedBytes).toBe(3);
    expect(store.offloadCount()).toBe(5);
  });

  it('does not touch blocks in use, however full HBM is', () => {
    const store = tiered({ offloadThreshold: 0 });
    const [a, b] = [request('a', 0, 16), request('b', 1000, 16)];
    admit(store, a);
    admit(store, b);
    release(store, b);
    expect(store.usedBlocks()).toBe(4);
    expect(store.offloadCount()).toBe(4);
    expect(store.tierUsage(0).residentBytes).toBe(4);
  });

  it.each(['evict', 'refuse'] as const)(
    'a full lower tier that must %s never overflows and loses nothing in use',
    (whenLowerFull) => {
      const store = tiered({ offloadThreshold: 0, ddrBlocks: 2, whenLowerFull });
      const requests = [0, 1, 2].map((i) => request(`r${i}`, i * 1000, 16));
      for (const r of requests) {
        admit(store, r);
        release(store, r);
        expect(store.tierUsage(1).residentBytes).toBeLessThanOrEqual(2);
      }
      expect(store.tierUsage(1).residentBytes).toBe(2);
      const kept = store.tierUsage(0).residentBytes;
      expect(kept).toBe(whenLowerFull === 'refuse' ? 10 : 0);
    },
  );

  it('reaches the disk when host memory is full', () => {
    const store = tiered({ offloadThreshold: 0, ddrBlocks: 2, nvmeBlocks: 8 });
    const a = request('a', 0, 24);
    admit(store, a);
    release(store, a);
    expect([0, 1, 2].map((tier) => store.tierUsage(tier).residentBytes)).toEqual([0, 2, 4]);
    expect(store.getCachedBlocks(a.tokens)).toHaveLength(6);
  });
});

describe('reload', () => {
  it('a block found only below is brought up, and its tokens need no prefill', () => {
    const store = tiered({ offloadThreshold: 0, transferBandwidth: 2 });
    const a = request('a', 0, 17);
    admit(store, a);
    release(store, a);
    expect(store.tierUsage(0).residentBytes).toBe(0);
    const again = request('again', 0, 17);
    expect(admit(store, again)).toBe(true);
    expect(store.computedTokens(again)).toBe(16);
    expect(store.reloadCount()).toBe(4);
    expect(store.pendingTransferLatency()).toBe(Math.ceil((4 * 4) / 2));
  });

  it('is billed once, base + ceil(tokens / bandwidth), and reading the bill does not pay it', () => {
    const store = tiered({ offloadThreshold: 0, transferBandwidth: 3, transferBaseLatency: 7 });
    const a = request('a', 0, 9);
    admit(store, a);
    release(store, a);
    admit(store, request('again', 0, 9));
    expect(store.pendingTransferLatency()).toBe(7 + Math.ceil(8 / 3));
    expect(store.pendingTransferLatency()).toBe(7 + Math.ceil(8 / 3));
    expect(store.consumePendingTransferLatency()).toBe(7 + Math.ceil(8 / 3));
    expect(store.consumePendingTransferLatency()).toBe(0);
  });

  it('takes bytes per second with a base as the other link model', () => {
    const store = tiered({
      offloadThreshold: 0,
      link: { bandwidthBytesPerS: 1e9, blockBytes: 65_536, baseLatencyUs: 5 },
    });
    const a = request('a', 0, 9);
    admit(store, a);
    release(store, a);
    admit(store, request('again', 0, 9));
    expect(store.consumePendingTransferLatency()).toBe(5 + Math.ceil((2 * 65_536) / 1000));
  });

  it('leaves the lower copy, and a release drops none', () => {
    const store = tiered({ offloadThreshold: 0 });
    const a = request('a', 0, 17);
    admit(store, a);
    release(store, a);
    const again = request('again', 0, 17);
    admit(store, again);
    expect(store.tierUsage(1).residentBytes).toBe(4);
    release(store, again);
    expect(store.tierUsage(1).residentBytes).toBe(4);
    expect(store.getCachedBlocks(a.tokens)).toHaveLength(4);
  });

  it('never evicts the prefix that it is being brought for', () => {
    const store = tiered({ hbmBlocks: 6, offloadThreshold: 1, ddrBlocks: 6 });
    const a = request('a', 0, 24);
    admit(store, a);
    release(store, a);
    const b = request('b', 1000, 16);
    admit(store, b);
    release(store, b);
    const again = request('again', 0, 24);
    const cached = store.getCachedBlocks(again.tokens);
    expect(cached).toHaveLength(6);
    expect(store.allocateKVBlocks(again, 24, 24, cached)).toBe(true);
    store.checkIntegrity();
    expect(store.computedTokens(again)).toBe(20);
    expect(store.usedBlocks()).toBe(6);
  });
});

describe('a fully cached prompt', () => {
  it('still computes the block of its last token, and its other blocks are hits', () => {
    const store = newKVStore({ hbmBlocks: 10, blockSize: 4 });
    const a = request('a', 0, 16);
    admit(store, a);
    release(store, a);
    const again = request('again', 0, 16);
    expect(store.getCachedBlocks(again.tokens)).toHaveLength(4);
    expect(admit(store, again)).toBe(true);
    expect(store.computedTokens(again)).toBe(12);
    expect(store.usedBlocks()).toBe(4);
    expect(store.cacheHitRate()).toBe(3 / (3 + 1 + 4));
  });
});

describe('the hit rate', () => {
  it('is 0 before any lookup and a probe counts nothing', () => {
    const store = newKVStore({ hbmBlocks: 10, blockSize: 4 });
    expect(store.cacheHitRate()).toBe(0);
    const a = request('a', 0, 16);
    admit(store, a);
    const before = store.cacheHitRate();
    for (let i = 0; i < 5; i++) store.getCachedBlocks(a.tokens);
    expect(store.cacheHitRate()).toBe(before);
  });

  it('counts blocks of admitted requests only', () => {
    const store = newKVStore({ hbmBlocks: 4, blockSize: 4 });
    const a = request('a', 0, 16);
    admit(store, a);
    expect(admit(store, request('b', 1000, 8))).toBe(false);
    expect(store.cacheHitRate()).toBe(0);
    release(store, a);
    expect(admit(store, request('c', 0, 17))).toBe(false);
    expect(store.cacheHitRate()).toBe(0);
    expect(admit(store, request('d', 0, 13))).toBe(true);
    expect(store.cacheHitRate()).toBe(3 / (4 + 3 + 1));
  });
});

describe('thrashing', () => {
  const thrash = (gap: number): number => {
    const store = tiered({ offloadThreshold: 0, thrashingWindow: 1000 });
    const a = request('a', 0, 17);
    admit(store, a);
    store.setClock(5000);
    release(store, a);
    store.setClock(5000 + gap);
    admit(store, request('again', 0, 17));
    return store.kvThrashingRate();
  };

  it('is 0 before any offload', () => {
    expect(tiered().kvThrashingRate()).toBe(0);
  });

  it('is a reload within the window of the same block’s offload', () => {
    expect(thrash(999)).toBe(1);
    expect(thrash(1000), 'the window itself is over').toBe(0);
  });

  it('measures from the offload of the block itself, not from the latest of any', () => {
    const store = tiered({ offloadThreshold: 0, thrashingWindow: 1000 });
    const [a, b] = [request('a', 0, 17), request('b', 1000, 17)];
    admit(store, a);
    release(store, a);
    store.setClock(5000);
    admit(store, b);
    release(store, b);
    store.setClock(5500);
    admit(store, request('again', 0, 17));
    expect(store.kvThrashingRate()).toBe(0);
  });
});
