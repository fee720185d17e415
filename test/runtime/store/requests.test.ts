/** What requests find, hold and give back, whatever the store. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { StoreRequest } from '../../../src/views/kvStore.ts';
import { newKVStore } from '../../../src/views/kvStore.ts';
import { admit, release, request, tiered, tokens } from './stores.ts';

describe('requests', () => {
  it('a preemption gives the blocks back and is counted', () => {
    const store = newKVStore({ hbmBlocks: 4, blockSize: 4 });
    const a = request('a', 0, 16);
    admit(store, a);
    store.preemptKVBlocks(a);
    store.checkIntegrity();
    expect(store.preemptionCount()).toBe(1);
    expect(store.usedBlocks()).toBe(0);
    store.preemptKVBlocks(a);
    expect(store.preemptionCount()).toBe(1);
  });

  it('allocating an id again leaks nothing', () => {
    const store = newKVStore({ hbmBlocks: 8, blockSize: 4 });
    for (let i = 0; i < 20; i++) {
      const r = request('same', i * 100, 16);
      expect(store.allocateKVBlocks(r, 0, 16, [])).toBe(true);
      store.checkIntegrity();
      expect(store.usedBlocks()).toBe(4);
    }
    store.releaseKVBlocks(request('same', 0, 1));
    expect(store.usedBlocks()).toBe(0);
  });

  it('that is refused a new beginning has what it had', () => {
    const store = newKVStore({ hbmBlocks: 8, blockSize: 4 });
    const [a, other] = [request('a', 0, 12), request('other', 500, 12)];
    admit(store, a);
    admit(store, other);
    const before = {
      used: store.usedBlocks(),
      computed: store.computedTokens(a),
      hits: store.cacheHitRate(),
    };
    const unchanged = (): void => {
      store.checkIntegrity();
      const now = { used: store.usedBlocks(), computed: store.computedTokens(a), hits: store.cacheHitRate() };
      expect(now).toEqual(before);
    };
    const longer = { id: 'a', tokens: tokens(1000, 40) };
    expect(store.allocateKVBlocks(longer, 0, 40, []), 'no room').toBe(false);
    unchanged();
    expect(store.allocateKVBlocks(a, 8, 12, [90, 91]), 'no such blocks').toBe(false);
    unchanged();
    expect(() => store.allocateKVBlocks(a, 9, 12, [90, 91])).toThrow(/gap/);
    unchanged();
    expect(() => store.allocateKVBlocks({ id: 'a', tokens: [-1, 2, 3, 4] }, 0, 4, [])).toThrow(/-1/);
    unchanged();
    const cached = store.getCachedBlocks(a.tokens);
    expect(
      store.allocateKVBlocks({ id: 'a', tokens: tokens(0, 20) }, 12, 20, cached),
      'its own blocks count',
    ).toBe(true);
    store.checkIntegrity();
    expect(store.usedBlocks()).toBe(8);
  });

  it('two requests that compute the same content in one step share it, and evicting one copy leaves the other found', () => {
    const store = newKVStore({ hbmBlocks: 8, blockSize: 4 });
    const [a, b] = [request('a', 0, 12), request('b', 0, 12)];
    expect(store.allocateKVBlocks(a, 0, 12, [])).toBe(true);
    expect(store.allocateKVBlocks(b, 0, 12, [])).toBe(true);
    store.checkIntegrity();
    expect(store.usedBlocks()).toBe(6);
    release(store, a);
    const filler = request('filler', 1000, 20);
    expect(admit(store, filler)).toBe(true);
    expect(store.getCachedBlocks(b.tokens)).toHaveLength(3);
    release(store, b);
    expect(store.getCachedBlocks(b.tokens)).toHaveLength(3);
  });

  it('a refused allocation changes nothing', () => {
    const store = tiered({ hbmBlocks: 4, ddrBlocks: 8, offloadThreshold: 1 });
    const a = request('a', 0, 12);
    admit(store, a);
    const before = JSON.stringify([store.tierUsage(0), store.tierUsage(1), store.cacheHitRate()]);
    expect(admit(store, request('b', 1000, 12))).toBe(false);
    expect(JSON.stringify([store.tierUsage(0), store.tierUsage(1), store.cacheHitRate()])).toBe(before);
  });

  it('stale ids from an old lookup are refused, not misread', () => {
    const store = newKVStore({ hbmBlocks: 4, blockSize: 4 });
    const a = request('a', 0, 16);
    admit(store, a);
    release(store, a);
    const stale = store.getCachedBlocks(a.tokens);
    const b = request('b', 1000, 16);
    admit(store, b);
    release(store, b);
    expect(store.allocateKVBlocks(request('c', 0, 16), 16, 16, stale)).toBe(false);
    expect(store.usedBlocks()).toBe(0);
  });

  it('generated tokens fill blocks that the next turn finds', () => {
    const store = newKVStore({ hbmBlocks: 8, blockSize: 4 });
    const grown = tokens(0, 12);
    const a: StoreRequest = { id: 'a', tokens: grown, promptTokens: 6 };
    expect(store.allocateKVBlocks(a, 0, 6, [])).toBe(true);
    for (let t = 6; t < 12; t++) {
      expect(store.allocateKVBlocks(a, t, t + 1, [])).toBe(true);
      store.checkIntegrity();
    }
    expect(store.usedBlocks()).toBe(3);
    release(store, a);
    expect(store.getCachedBlocks(grown)).toHaveLength(3);
  });

  it('tenants share nothing, and each finds its own', () => {
    const store = newKVStore({ hbmBlocks: 8, blockSize: 4 });
    const a: StoreRequest = { ...request('a', 0, 12), tenant: 'red' };
    admit(store, a);
    release(store, a);
    expect(store.getCachedBlocks(a.tokens, 'red')).toHaveLength(3);
    expect(store.getCachedBlocks(a.tokens, 'blue')).toHaveLength(0);
    expect(store.getCachedBlocks(a.tokens)).toHaveLength(0);
  });

  it('tokens that leave a gap are an error that names the index', () => {
    const store = newKVStore({ hbmBlocks: 8, blockSize: 4 });
    const a = request('a', 0, 16);
    expect(() => store.allocateKVBlocks(a, 8, 16, [])).toThrow(/startIndex is 8/);
    store.allocateKVBlocks(a, 0, 8, []);
    expect(() => store.allocateKVBlocks(a, 12, 16, [])).toThrow(/startIndex is 12/);
    expect(() => store.allocateKVBlocks(a, 8, 17, [])).toThrow(/endIndex is 17/);
  });
});

describe('conservation', () => {
  it('holds in every tier after every operation', () => {
    const operation = fc.record({
      id: fc.nat(5),
      from: fc.nat(5),
      length: fc.integer({ min: 1, max: 30 }),
      what: fc.constantFrom('admit', 'admit', 'release', 'preempt', 'extend'),
    });
    const setting = fc.record({
      hbmBlocks: fc.integer({ min: 4, max: 12 }),
      ddrBlocks: fc.nat(8),
      nvmeBlocks: fc.nat(8),
      offloadThreshold: fc.constantFrom(0, 0.5, 0.9, 1),
      whenLowerFull: fc.constantFrom('evict' as const, 'refuse' as const),
    });
    fc.assert(
      fc.property(setting, fc.array(operation, { maxLength: 80 }), (config, operations) => {
        const store = newKVStore({ ...config, blockSize: 4 });
        const lengths = new Map<string, number>();
        let clock = 0;
        for (const { id, from, length, what } of operations) {
          store.setClock((clock += 100));
          const r = request(`r${id}`, from * 64, length);
          if (what === 'release') store.releaseKVBlocks(r);
          else if (what === 'preempt') store.preemptKVBlocks(r);
          else if (what === 'admit') {
            store.releaseKVBlocks(r);
            if (admit(store, r)) lengths.set(r.id, length);
            else lengths.delete(r.id);
          }
          if (what === 'release' || what === 'preempt') lengths.delete(r.id);
          store.checkIntegrity();
          const blocks = [...lengths.values()].map((n) => Math.ceil(n / 4));
          expect(store.usedBlocks()).toBeLessThanOrEqual(blocks.reduce((a, b) => a + b, 0));
          for (let tier = 0; tier < store.manager.inspect.tiers.length; tier++) {
            const usage = store.tierUsage(tier);
            expect(usage.heldBytes + usage.cachedBytes).toBe(usage.residentBytes);
            expect(usage.residentBytes + usage.slots.free).toBe(usage.capacityBytes);
          }
        }
      }),
      { numRuns: 200 },
    );
  });
});
