/** Pages of a continuous batch over a cache that counts: what each call does at its limits. */

import { describe, expect, it } from 'vitest';
import type { IPagedAttentionCache } from '../../../src/embed/pagedAttentionCache.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import {
  ContinuousBatchKVCacheManager,
  type KVCacheConfiguration,
} from '../../../src/views/continuousBatchKVCacheManager.ts';

class CountingCache implements IPagedAttentionCache<null, null> {
  readonly blockBytes = 16 * 1024;
  readonly taken: Set<number> = new Set();
  readonly #total: number;
  now = 0;

  constructor(total: number) {
    this.#total = total;
  }

  allocateBlock(count = 1): readonly number[] {
    if (this.getFreeBlockCount() < count) return [];
    const blocks: number[] = [];
    for (let i = 0; blocks.length < count; i++) if (!this.taken.has(i)) blocks.push(i);
    for (const block of blocks) this.taken.add(block);
    return blocks;
  }

  releaseBlock(index: number, count = 1): void {
    for (let i = index; i < index + count; i++) {
      if (!this.taken.delete(i)) throw new Error(`block ${i} is not taken`);
    }
  }

  getFreeBlockCount(): number {
    return this.#total - this.taken.size;
  }

  getTotalBlockCount(): number {
    return this.#total;
  }

  getBlockData(): null {
    return null;
  }

  storeBlockData(): null {
    return null;
  }

  nowUs(): number {
    return this.now;
  }
}

function make(total = 64, config: KVCacheConfiguration = {}) {
  const cache = new CountingCache(total);
  return { cache, manager: new ContinuousBatchKVCacheManager(cache, config) };
}

it('has the fields and defaults of the note', () => {
  expect(make().manager.config).toEqual({
    pageSizeTokens: 16,
    initialPagesPerRequest: 16,
    maxPagesPerRequest: 256,
    cacheBlockSizeBytes: 1024,
    targetUtilization: 0.85,
    enableCompaction: true,
    pageBytes: 16_384,
  });
});

it('allocates max(initial, what the tokens take), and says where each page is', () => {
  const { manager, cache } = make();
  cache.now = 5;
  expect(manager.allocateCache('a', 17 * 16 + 1)).toBe(18 * 16_384);
  expect(manager.allocateCache('b', 0)).toBe(16 * 16_384);
  expect(manager.getCurrentUsageBytes()).toBe(34 * 16_384);
  const a = manager.getAllocation('a');
  expect([a?.requestId, a?.pageCount, a?.totalTokensAllocated, a?.totalBytesAllocated]).toEqual([
    'a',
    18,
    288,
    18 * 16_384,
  ]);
  expect([a?.allocatedTimeUs, a?.age(12)]).toEqual([5, 7]);
  expect(a?.pages[2]).toMatchObject({
    pageIndex: 2,
    startToken: 32,
    endToken: 48,
    tokenCount: 16,
    blockIndex: 2,
  });
});

describe('a call at its limit', () => {
  const small = { initialPagesPerRequest: 1, maxPagesPerRequest: 4 };

  it('a second allocation for one request is refused and leaks nothing', () => {
    const { manager, cache } = make();
    manager.allocateCache('a', 10);
    expect(() => manager.allocateCache('a', 10)).toThrow(
      expect.objectContaining({ code: 'TKV_STATE', field: 'requestId' }),
    );
    manager.releaseCache('a');
    expect([cache.taken.size, manager.getCurrentUsageBytes()]).toEqual([0, 0]);
    expect(manager.allocateCache('a', 10)).toBe(16 * 16_384);
  });

  it('what it does not know, or is of a wrong kind, is refused', () => {
    const wrong = (config: object, field: string): void => {
      expect(() => make(64, config)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
    };
    wrong({ enableCompactoin: false }, 'enableCompactoin');
    wrong({ enableCompaction: 'no' }, 'enableCompaction');
    wrong({ targetUtilization: '1' }, 'targetUtilization');
    wrong({ initialPagesPerRequest: 1.5 }, 'initialPagesPerRequest');
  });

  it('releasing what is unknown does nothing', () => {
    const { manager, cache } = make();
    manager.allocateCache('a', 1);
    manager.releaseCache('b');
    expect(cache.taken.size).toBe(16);
    manager.releaseCache('a');
    manager.releaseCache('a');
    expect(cache.taken.size).toBe(0);
  });

  it('an extension uses the room that is there, then takes pages, up to the limit and not beyond', () => {
    const { manager, cache } = make(64, small);
    manager.allocateCache('a', 10);
    expect(manager.tryExtendCache('a', 6)).toBe(true);
    expect(cache.taken.size, 'the first page had room').toBe(1);
    expect(manager.tryExtendCache('a', 1)).toBe(true);
    expect(manager.getAllocation('a')?.pageCount).toBe(2);
    expect(manager.tryExtendCache('a', 47)).toBe(true);
    expect(manager.getAllocation('a')).toMatchObject({ pageCount: 4, requestedTokens: 64 });
    expect(manager.tryExtendCache('a', 1)).toBe(false);
    expect(manager.tryExtendCache('a', 0)).toBe(true);
    expect(manager.getAllocation('a')).toMatchObject({ pageCount: 4, requestedTokens: 64 });
  });

  it('an extension is all or nothing', () => {
    const { manager, cache } = make(5, small);
    manager.allocateCache('a', 16);
    manager.allocateCache('b', 48);
    expect(manager.tryExtendCache('a', 32)).toBe(false);
    expect([cache.taken.size, manager.getAllocation('a')?.pageCount]).toEqual([4, 1]);
    expect(manager.tryExtendCache('a', 16)).toBe(true);
  });

  it('an allocation without room takes nothing', () => {
    const { manager, cache } = make(20);
    manager.allocateCache('a', 1);
    expect(() => manager.allocateCache('b', 1)).toThrow(expect.objectContaining({ code: 'TKV_FULL' }));
    expect([cache.taken.size, manager.getAllocation('b')]).toEqual([16, undefined]);
  });

  it('more than a request or the cache can ever hold', () => {
    for (const [total, tokens] of [
      [64, 65],
      [3, 64],
    ]) {
      const { manager } = make(total, small);
      expect(() => manager.allocateCache('a', tokens)).toThrow(
        expect.objectContaining({ code: 'TKV_CAPACITY', field: 'maxTokens' }),
      );
    }
  });

  it('invalid counts, and requests without an allocation', () => {
    const { manager } = make();
    for (const count of [-1, 0.5, Number.NaN]) {
      expect(() => manager.allocateCache('a', count)).toThrow(
        expect.objectContaining({ field: 'maxTokens' }),
      );
    }
    manager.allocateCache('a', 1);
    expect(() => manager.tryExtendCache('a', -1)).toThrow(
      expect.objectContaining({ field: 'additionalTokens' }),
    );
    expect(() => manager.tryExtendCache('b', 1)).toThrow(
      expect.objectContaining({ code: 'TKV_UNKNOWN_ID', field: 'requestId' }),
    );
  });

  it.each([
    [{ pageSizeTokens: 0 }, 'pageSizeTokens'],
    [{ initialPagesPerRequest: 5, maxPagesPerRequest: 4 }, 'initialPagesPerRequest'],
    [{ maxPagesPerRequest: 1.5 }, 'maxPagesPerRequest'],
    [{ targetUtilization: 1.1 }, 'targetUtilization'],
    [{ cacheBlockSizeBytes: 1000 }, 'cacheBlockSizeBytes'],
    [{ pageSizeTokens: 32 }, 'cacheBlockSizeBytes'],
  ])('a configuration of %j', (config, field) => {
    expect(() => make(64, config)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
  });
});

const seed = Number(process.env.TIERKV_SEED ?? 1);

it(`any calls in any order agree with plain counts (seed ${seed})`, () => {
  const random = new SeededRandom(seed);
  const { manager, cache } = make(60, { initialPagesPerRequest: 2, maxPagesPerRequest: 9 });
  const tokens = new Map<string, number>();
  const pagesOf = (count: number): number => Math.max(2, Math.ceil(count / 16));
  const free = (): number => 60 - [...tokens.values()].reduce((sum, count) => sum + pagesOf(count), 0);
  for (let i = 0; i < 5000; i++) {
    const id = `r${random.below(12)}`;
    const count = random.below(60);
    const roll = random.below(3);
    const known = tokens.get(id);
    if (roll === 0 && known === undefined) {
      const fits = pagesOf(count) <= free();
      if (fits) tokens.set(id, count);
      if (fits) expect(manager.allocateCache(id, count)).toBe(pagesOf(count) * 16_384);
      else
        expect(() => manager.allocateCache(id, count)).toThrow(expect.objectContaining({ code: 'TKV_FULL' }));
    } else if (roll === 1 && known !== undefined) {
      const more = pagesOf(known + count) - pagesOf(known);
      const fits = more <= free() && Math.ceil((known + count) / 16) <= 9;
      if (fits) tokens.set(id, known + count);
      expect(manager.tryExtendCache(id, count), `seed ${seed}, call ${i}`).toBe(fits);
    } else if (roll === 2) {
      tokens.delete(id);
      manager.releaseCache(id);
    }
    expect(manager.getCurrentUsageBytes()).toBe((60 - free()) * 16_384);
    expect(cache.getFreeBlockCount()).toBe(free());
  }
});
