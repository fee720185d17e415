/** Reuse across requests on real tiers: bytes, reference counts, tenants, groups and quotas. */

import { describe, expect, it } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import { Entry } from '../../../src/runtime/index.ts';
import type { CrossRequestKVCache } from '../../../src/views/index.ts';
import { blocks, layout, openRuntime } from '../liveRuntime.ts';

const { blockTokens } = layout;
const promptOf = (length: number, from = 0): number[] => Array.from({ length }, (_, i) => from + i);

/** Writes each token's row, from `from` on, into the request's own blocks. */
function write(
  kv: KVRuntime,
  cache: CrossRequestKVCache,
  id: string,
  tokens: readonly number[],
  from: number,
): void {
  const { slabs, entries } = kv.places(cache.sequenceOf(id));
  for (let at = from; at < tokens.length; at++) {
    const block = Math.floor(at / blockTokens);
    const offset = entries[2 * block + 1] + (at % blockTokens) * layout.rowBytes;
    const row = new Uint32Array(layout.rowBytes / 4).fill(tokens[at]);
    kv.device.queue.writeBuffer(slabs[entries[2 * block]], offset, row);
  }
}

/** The tokens whose rows the request's blocks hold now. */
async function read(
  kv: KVRuntime,
  cache: CrossRequestKVCache,
  id: string,
  length: number,
): Promise<number[]> {
  const { slabs, entries, blocks: count } = kv.places(cache.sequenceOf(id));
  const bytes = blockTokens * layout.rowBytes;
  const buffer = kv.device.createBuffer({ size: count * bytes, usage: 0x1 | 0x8 });
  const encoder = kv.device.createCommandEncoder();
  for (let b = 0; b < count; b++) {
    encoder.copyBufferToBuffer(slabs[entries[2 * b]], entries[2 * b + 1], buffer, b * bytes, bytes);
  }
  kv.device.queue.submit([encoder.finish()]);
  await buffer.mapAsync(0x1);
  const words = new Uint32Array(buffer.getMappedRange().slice(0));
  return Array.from({ length }, (_, at) => words[(at * layout.rowBytes) / 4]);
}

/** A request from its beginning to the end of its prefill. @returns tokens that it found */
async function run(
  kv: KVRuntime,
  cache: CrossRequestKVCache,
  id: string,
  tokens: readonly number[],
  tenant: string,
): Promise<number> {
  const { matchedTokens } = cache.tryReuse(id, tokens, tenant);
  expect(cache.allocate(id, tokens.length)).toBe(true);
  await kv.ready(cache.sequenceOf(id));
  write(kv, cache, id, tokens, matchedTokens);
  expect(await read(kv, cache, id, tokens.length)).toEqual(tokens);
  cache.commit(id, tokens, null, true, tenant);
  await kv.ready(cache.sequenceOf(id));
  kv.manager.checkIntegrity();
  return matchedTokens;
}

describe('a request', () => {
  it('whose blocks were lost does not get them again to grow on: what it wrote is gone', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(40) });
    const cache = kv.crossRequestCache();
    const tokens = promptOf(70);
    cache.tryReuse('r', tokens, 'a');
    expect(cache.allocate('r', 48)).toBe(true);
    write(kv, cache, 'r', tokens.slice(0, 48), 0);
    kv.manager.loseTier(0, kv.nowUs());
    expect(() => cache.allocate('r', 70)).toThrow(expect.objectContaining({ code: 'TKV_STATE' }));
    expect(() => cache.commit('r', tokens, null, true, 'a')).toThrow(
      expect.objectContaining({ code: 'TKV_STATE' }),
    );
    expect(kv.lookup(tokens, { tenant: 'a' }).blocks).toBe(0);
    cache.release('r');
    expect(await run(kv, cache, 'r', tokens, 'a')).toBe(0);
    cache.release('r');
  });

  it('finds the longest prefix in one pass, and takes the beginning of a block that departs, by copy', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(40) });
    const cache = kv.crossRequestCache();
    const first = promptOf(70);
    expect(await run(kv, cache, 'first', first, 'a')).toBe(0);
    const departs = [...promptOf(40), ...promptOf(30, 5000)];
    expect(await run(kv, cache, 'second', departs, 'a'), 'two blocks, and half of the third').toBe(40);
    expect(await read(kv, cache, 'first', 70), 'the block that was copied is as it was').toEqual(first);
    expect(await run(kv, cache, 'third', promptOf(48), 'a'), 'the last token is left').toBe(47);
    expect(await run(kv, cache, 'other', promptOf(70, 9000), 'a')).toBe(0);
    expect(cache.getStats()).toEqual({
      totalQueries: 4,
      cacheHits: 2,
      cacheMisses: 2,
      totalReusedTokens: 87,
      hitRate: 0.5,
      indexSize: 4 + 2 + 4,
    });
    expect(kv.manager.inspect.counters.copies).toBe(2);
  });

  it('holds what it found: nothing of it is evicted before it lets go, and then it stays cached', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(12) });
    const cache = kv.crossRequestCache();
    await run(kv, cache, 'first', promptOf(65), 'a');
    cache.release('first');
    const { matchedBlocks, matchedTokens, totalTokens, reused, reuseRatio } = cache.tryReuse(
      'second',
      promptOf(65),
      'a',
    );
    expect([matchedBlocks, matchedTokens, totalTokens, reused, reuseRatio]).toEqual([
      4,
      64,
      65,
      true,
      64 / 65,
    ]);
    expect(kv.manager.evict(0, 10, kv.nowUs())).toMatchObject({ evicted: 0 });
    cache.release('second');
    cache.release('second');
    expect(kv.lookup(promptOf(65), { tenant: 'a' }).blocks).toBe(4);
    expect(kv.manager.evict(0, 10, kv.nowUs())).toMatchObject({ evicted: 4 });
    expect(kv.manager.inspect.openSequences).toBe(0);
  });

  it('brings up what lies below, and keeps what is not shareable to itself', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(20), ddrBytes: blocks(20) });
    const cache = kv.crossRequestCache();
    await run(kv, cache, 'first', promptOf(65), 'a');
    cache.release('first');
    kv.manager.evict(0, 10, kv.nowUs());
    await kv.idle();
    expect(kv.lookup(promptOf(65), { tenant: 'a' }).byTier).toEqual([0, 4]);
    expect(await run(kv, cache, 'second', promptOf(65), 'a')).toBe(64);
    cache.tryReuse('own', promptOf(40, 700), 'a');
    cache.allocate('own', 40);
    await kv.ready(cache.sequenceOf('own'));
    cache.commit('own', promptOf(40, 700), null, false, 'a');
    expect(cache.sequenceOf('own').state[0]).toBe(Entry.OPEN);
    cache.release('own');
    expect(cache.tryReuse('again', promptOf(40, 700), 'a').reused).toBe(false);
  });
});

describe('tenants', () => {
  it('find nothing of each other, and a slot that passes between them is cleared', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(6) });
    const cache = kv.crossRequestCache();
    await run(kv, cache, 'first', promptOf(80), 'a');
    cache.release('first');
    expect(cache.tryReuse('second', promptOf(80), 'b').reused).toBe(false);
    expect(cache.allocate('second', 80)).toBe(true);
    await kv.ready(cache.sequenceOf('second'));
    expect(await read(kv, cache, 'second', 80)).toEqual(new Array(80).fill(0));
  });

  it('share all where isolation is off, and within a declared group', async () => {
    const sharingGroups = { family: ['mother', 'daughter'] };
    await using kv = await openRuntime({ hbmBytes: blocks(40), sharingGroups });
    const grouped = kv.crossRequestCache();
    await run(kv, grouped, 'first', promptOf(65), 'mother');
    expect(grouped.tryReuse('second', [...promptOf(40), 1, 2], 'daughter').matchedTokens).toBe(40);
    expect(grouped.tryReuse('third', promptOf(65), 'stranger').reused).toBe(false);
    expect(
      grouped.tryReuse('fourth', promptOf(65), 'family').reused,
      'a name alone gives no membership',
    ).toBe(false);
    expect(() => grouped.tryReuse('fifth', promptOf(65), '\u0000family')).toThrow('zero character');
    const open = kv.crossRequestCache({ enableTenantIsolation: false });
    await run(kv, open, 'first', promptOf(65, 400), 'x');
    expect(open.tryReuse('second', promptOf(65, 400), 'y').matchedTokens).toBe(64);
  });

  it('have quotas by name of tier', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(20), sharingGroups: { pair: ['a1', 'a2'] } });
    const cache = kv.crossRequestCache();
    kv.setQuota('a1', 'hbm', blocks(4));
    await run(kv, cache, 'kept', promptOf(64), 'a2');
    cache.release('kept');
    for (let i = 0; i < 6; i++) {
      await run(kv, cache, `stream ${i}`, promptOf(64, 1000 * (i + 1)), 'b');
      cache.release(`stream ${i}`);
    }
    expect(kv.lookup(promptOf(65), { tenant: 'a1' }).blocks).toBe(4);
    expect(kv.budget('a2').tiers[0]).toMatchObject({ ownedBytes: blocks(4), quotaBytes: blocks(4) });
    expect(kv.budget('b').tiers[0].protectedBytes).toBe(blocks(4));
    expect(kv.kvMetrics().lookups).toBeGreaterThan(0);
    expect(() => kv.setQuota('b', 'hbm', blocks(40))).toThrow(expect.objectContaining({ field: 'bytes' }));
    expect(() => kv.setQuota('b', 'hmb' as 'hbm', 0)).toThrow("Did you mean 'hbm'?");
  });
});

it('mistakes are one error, and nothing is done', async () => {
  const open = (sharingGroups: unknown): Promise<unknown> =>
    openRuntime({ sharingGroups: sharingGroups as never });
  await expect(open({ g: [] })).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'sharingGroups.g' });
  await expect(open({ g: ['a'], h: ['a'] })).rejects.toMatchObject({ field: 'sharingGroups.h' });
  await using kv = await openRuntime({ hbmBytes: blocks(6) });
  const cache = kv.crossRequestCache();
  cache.tryReuse('r', promptOf(20), 'a');
  expect(() => cache.tryReuse('r', promptOf(20), 'a')).toThrow(
    expect.objectContaining({ field: 'requestId' }),
  );
  expect(cache.getStats().totalQueries).toBe(1);
  expect(cache.allocate('r', 1000)).toBe(false);
  expect(cache.sequenceOf('r').length).toBe(0);
  expect(() => cache.allocate('x', 1)).toThrow(expect.objectContaining({ code: 'TKV_UNKNOWN_ID' }));
  expect(() => cache.allocate('r', -1)).toThrow(expect.objectContaining({ field: 'tokens' }));
  cache.allocate('r', 20);
  expect(() => cache.commit('r', promptOf(20), null, true, 'b')).toThrow(
    expect.objectContaining({ field: 'tenantId' }),
  );
  expect(() => cache.commit('r', promptOf(20), [1], true, 'a')).toThrow(
    expect.objectContaining({ field: 'blocks[0]' }),
  );
  expect(cache.sequenceOf('r').state[0]).toBe(Entry.OPEN);
});
