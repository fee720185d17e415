/** Pages of a continuous batch on the software device: their K and V, their limits, their compaction. */

import { describe, expect, it } from 'vitest';
import type { PagedAttentionCache } from '../../../src/embed/pagedAttentionCache.ts';
import type { KVRuntime } from '../../../src/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { ContinuousBatchKVCacheManager } from '../../../src/views/index.ts';
import { deviceBytes } from '../deviceBytes.ts';
import { ask, blocks, layout, openRuntime } from '../liveRuntime.ts';

const half = layout.blockBytes / 2;

/** Bytes that only this page of this request has. */
function halvesOf(request: number, page: number): { keyCache: Uint8Array; valueCache: Uint8Array } {
  const fill = (seed: number): Uint8Array =>
    Uint8Array.from({ length: half }, (_, i) => (seed + i * 7) & 255);
  return { keyCache: fill(17 * request + page), valueCache: fill(101 + 17 * request + page) };
}

async function store(
  cache: PagedAttentionCache,
  manager: ContinuousBatchKVCacheManager,
  request: number,
): Promise<void> {
  for (const { pageIndex, blockIndex } of manager.getAllocation(`r${request}`)?.pages ?? []) {
    await cache.storeBlockData(blockIndex, { ...halvesOf(request, pageIndex), tokenCount: 16 });
  }
}

async function expectBytes(
  cache: PagedAttentionCache,
  manager: ContinuousBatchKVCacheManager,
  request: number,
): Promise<void> {
  for (const { pageIndex, blockIndex } of manager.getAllocation(`r${request}`)?.pages ?? []) {
    const { keyCache, valueCache, tokenCount } = await cache.getBlockData(blockIndex);
    const right = halvesOf(request, pageIndex);
    const same =
      Buffer.compare(keyCache, right.keyCache) === 0 && Buffer.compare(valueCache, right.valueCache) === 0;
    expect([request, pageIndex, same, tokenCount]).toEqual([request, pageIndex, true, 16]);
  }
}

const freePages = (kv: KVRuntime): number => kv.manager.inspect.pool(0).uncutPages;

it('K and V are stored in the layout of the device and read back', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(20) });
  using cache = kv.pagedCache();
  const [index] = cache.allocateBlock();
  await cache.storeBlockData(index, { ...halvesOf(3, 5), tokenCount: 9 });
  const { keyCache, valueCache, tokenCount, blockIndex } = await cache.getBlockData(index);
  expect([keyCache, valueCache]).toEqual([halvesOf(3, 5).keyCache, halvesOf(3, 5).valueCache]);
  expect([blockIndex, tokenCount]).toEqual([index, 9]);
  const { slabs, entries } = cache.blockTable([index]);
  const place = { buffer: slabs[entries[0]], offsetBytes: entries[1], sizeBytes: layout.blockBytes };
  const bytes = await deviceBytes(kv.device, place);
  const plane = layout.kvStrideBytes;
  expect(bytes.subarray(0, plane)).toEqual(keyCache.subarray(0, plane));
  expect(bytes.subarray(plane, 2 * plane)).toEqual(valueCache.subarray(0, plane));
  expect(bytes.subarray(2 * plane, 3 * plane)).toEqual(keyCache.subarray(plane, 2 * plane));
});

it('compaction of a pool with a third of its slots scattered frees whole pages, and keeps every byte', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(192), blocksPerPage: 8 });
  using cache = kv.pagedCache();
  const manager = new ContinuousBatchKVCacheManager(cache, {
    initialPagesPerRequest: 2,
    enableCompaction: false,
  });
  const requests = Math.floor(cache.getTotalBlockCount() / 2);
  const random = new SeededRandom(7);
  for (let r = 0; r < requests; r++) manager.allocateCache(`r${r}`, 32);
  const kept = Array.from({ length: requests }, (_, r) => r).filter(() => random.chance(1 / 3));
  for (const r of kept) await store(cache, manager, r);
  for (let r = 0; r < requests; r++) if (!kept.includes(r)) manager.releaseCache(`r${r}`);
  const before = freePages(kv);
  const tables = kept.map((r) => tableOf(cache, manager, r));
  const { movedBlocks, freedPages } = manager.compactCache();
  await kv.idle();
  kv.manager.checkIntegrity();
  expect(freePages(kv) - before).toBe(freedPages);
  const needed = Math.ceil((2 * kept.length) / 8);
  expect(kv.manager.inspect.pool(0).shape.pages - freePages(kv), 'no more pages than the blocks fill').toBe(
    needed,
  );
  expect(freedPages).toBeGreaterThan(5);
  expect(kv.manager.inspect.counters.copies).toBe(movedBlocks);
  expect(kept.map((r) => tableOf(cache, manager, r))).not.toEqual(tables);
  for (const r of kept) await expectBytes(cache, manager, r);
  expect(manager.tryExtendCache('r0', 0) || !kept.includes(0)).toBe(true);
  const again = manager.compactCache();
  expect(again, 'there is nothing left to do').toEqual({ movedBlocks: 0, freedPages: 0 });
});

function tableOf(
  cache: PagedAttentionCache,
  manager: ContinuousBatchKVCacheManager,
  request: number,
): number[] {
  const pages = manager.getAllocation(`r${request}`)?.pages ?? [];
  return [...cache.blockTable(pages.map(({ blockIndex }) => blockIndex)).entries];
}

describe('a release', () => {
  it('compacts by itself below the target, and not above it', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(64), blocksPerPage: 4 });
    using cache = kv.pagedCache();
    const config = { initialPagesPerRequest: 1 };
    const manager = new ContinuousBatchKVCacheManager(cache, config);
    for (let r = 0; r < 40; r++) manager.allocateCache(`r${r}`, 16);
    for (let r = 0; r < 40; r += 10) await store(cache, manager, r);
    manager.releaseCache('r39');
    expect(kv.manager.inspect.counters.copies, '39 of 40 places are taken').toBe(0);
    for (let r = 0; r < 40; r++) if (r % 10 !== 0) manager.releaseCache(`r${r}`);
    await kv.idle();
    expect(kv.manager.inspect.counters.copies).toBeGreaterThan(0);
    manager.compactCache();
    await kv.idle();
    expect(cache.placement.utilization()).toBeGreaterThanOrEqual(0.5);
    for (let r = 0; r < 40; r += 10) await expectBytes(cache, manager, r);
    kv.manager.checkIntegrity();
  });
});

it('lives beside cached prompts: it takes their room, and they find what is left', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(20), ddrBytes: blocks(40) });
  for (let seed = 1; seed < 5; seed++) await ask(kv, seed);
  using cache = kv.pagedCache();
  const taken = cache.allocateBlock(12);
  expect(taken.length).toBe(12);
  await cache.ready(taken);
  for (const index of taken) await cache.storeBlockData(index, { ...halvesOf(1, index), tokenCount: 1 });
  expect(await ask(kv, 2)).toEqual({ cachedTokens: 64, right: true });
  for (const index of taken)
    expect((await cache.getBlockData(index)).keyCache).toEqual(halvesOf(1, index).keyCache);
  expect(cache.allocateBlock(cache.getFreeBlockCount() + 1)).toEqual([]);
  kv.manager.checkIntegrity();
});

it('a lost device loses the bytes and says so; what is not taken is unknown', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(20) });
  using cache = kv.pagedCache();
  const [index] = cache.allocateBlock();
  await expect(cache.getBlockData(index + 1)).rejects.toMatchObject({
    code: 'TKV_UNKNOWN_ID',
    field: 'index',
  });
  expect(() => cache.releaseBlock(index, 2)).toThrow(expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }));
  const wrong = { ...halvesOf(1, 1), keyCache: new Uint8Array(3), tokenCount: 1 };
  await expect(cache.storeBlockData(index, wrong)).rejects.toMatchObject({ field: 'keyCache' });
  await cache.ready([index]);
  kv.device.destroy();
  await kv.device.lost;
  while (kv.devicesLost === 0) await new Promise(setImmediate);
  await expect(cache.getBlockData(index)).rejects.toMatchObject({ code: 'TKV_STATE' });
  cache.releaseBlock(index);
  expect(() => cache.releaseBlock(index)).toThrow(expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }));
});
