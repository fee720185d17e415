/**
 * Every door that allocates, with a device that is away when blocks are opened and with an owner that forgets to write: what
 * was not written is never found, what was accepted is there, and no word of another tenant is met in an open block.
 */

import { afterEach, describe, expect, it } from 'vitest';
import type { KVRuntime } from '../../../src/index.ts';
import type { TieredStorageConfig } from '../../../src/views/tieredConfig.ts';
import { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import { testAdapter } from '../../adapter.ts';
import { deviceBytes } from '../deviceBytes.ts';
import { blocks, layout, openRuntime } from '../liveRuntime.ts';
import { takeOutTheRule } from '../withoutTheRule.ts';

const BLOCK = layout.blockBytes;
const tokens = Array.from({ length: 64 }, (_, i) => i + 5);
const ownDevice = { device: undefined, adapter: testAdapter, notice: () => {} };
let putBack = (): void => {};
afterEach(() => putBack());

async function loseDevice(kv: KVRuntime): Promise<void> {
  const losses = kv.devicesLost;
  kv.device.destroy();
  await kv.device.lost;
  while (kv.devicesLost === losses) await new Promise((resolve) => setImmediate(resolve));
}

/** The first byte of each cached block of the tokens. */
async function found(kv: KVRuntime, tenant: string): Promise<number[]> {
  using sequence = await kv.begin([...tokens, 1], { tenant, wait: true });
  const bytes: number[] = [];
  for (let i = 0; i < sequence.cachedTokens / layout.blockTokens; i++) {
    bytes.push((await kv.readBlock(sequence, i))[0]);
  }
  return bytes;
}

function writeTable(kv: KVRuntime, table: Parameters<KVRuntime['places']>[0], byte: number): void {
  const { slabs, entries, blocks: count } = kv.places(table);
  for (let i = 0; i < count; i++) {
    kv.device.queue.writeBuffer(slabs[entries[2 * i]], entries[2 * i + 1], new Uint8Array(BLOCK).fill(byte));
  }
}

const storageConfig: TieredStorageConfig = {
  adapter: testAdapter,
  notice: () => {},
  pool: { layout, blockSize: 16, model: 'm@1', secretKey: new Uint8Array(32).fill(7) },
  tiers: [
    { tier: 'hbm', capacityBytes: blocks(60) },
    { tier: 'ddr', capacityBytes: blocks(60) },
  ],
};
const asked = (sequenceId: string, tenant: string, numTokens = 64) =>
  ({ sequenceId, requestId: sequenceId, numTokens, layerIds: [0, 1], tokenIds: tokens, tenant }) as const;

/** Opens blocks through reuse while the device is away, and commits them without having been told. */
async function committedWhileAway(): Promise<number[]> {
  await using kv = await openRuntime({ ...ownDevice, hbmBytes: blocks(40), ddrBytes: blocks(40) });
  const cache = kv.crossRequestCache();
  await loseDevice(kv);
  cache.tryReuse('r', tokens, 'a');
  expect(cache.allocate('r', 64)).toBe(true);
  let refusal: unknown;
  try {
    cache.commit('r', tokens, null, true, 'a');
  } catch (error) {
    refusal = error;
  }
  cache.release('r');
  const bytes = await found(kv, 'a');
  if (bytes.length === 0) expect(refusal).toMatchObject({ code: 'TKV_STATE' });
  return bytes;
}

describe('while the device is away', () => {
  it('reuse waits for the next one, and what was written there is found', async () => {
    await using kv = await openRuntime({ ...ownDevice, hbmBytes: blocks(40), ddrBytes: blocks(40) });
    const cache = kv.crossRequestCache();
    await loseDevice(kv);
    cache.tryReuse('r', tokens, 'a');
    expect(cache.allocate('r', 64)).toBe(true);
    const table = cache.sequenceOf('r');
    if (!kv.devicePresent)
      expect(() => kv.places(table)).toThrow(expect.objectContaining({ code: 'TKV_DEVICE' }));
    await kv.ready(table);
    expect(kv.devicePresent).toBe(true);
    writeTable(kv, table, 0x77);
    cache.commit('r', tokens, null, true, 'a');
    await kv.idle();
    cache.release('r');
    expect(await found(kv, 'a')).toEqual([0x77, 0x77, 0x77, 0x77]);
  });

  it('reuse publishes nothing that was opened then and not written', async () => {
    expect(await committedWhileAway()).toEqual([]);
  });

  it('control: without the rule zeros are found', async () => {
    putBack = takeOutTheRule();
    expect(await committedWhileAway()).toEqual([0, 0, 0, 0]);
  });

  it('a paged cache has what it was given, on the next one', async () => {
    await using kv = await openRuntime({ ...ownDevice, hbmBytes: blocks(40) });
    using cache = kv.pagedCache();
    await loseDevice(kv);
    const [block] = cache.allocateBlock(1);
    const half = BLOCK / 2;
    const data = {
      keyCache: new Uint8Array(half).fill(7),
      valueCache: new Uint8Array(half).fill(9),
      tokenCount: 16,
    };
    await cache.storeBlockData(block, data);
    const { keyCache, valueCache, tokenCount } = await cache.getBlockData(block);
    expect([keyCache[0], valueCache[0], tokenCount]).toEqual([7, 9, 16]);
  });

  it('a tiered storage writes to the next one, and seals nothing whose writing was refused', async () => {
    await using storage = await TieredKVStorage.open(storageConfig);
    const opened = storage.pool.allocate(asked('before', 'a'));
    storage.device.destroy();
    const refused = await storage
      .writeBlocks(
        opened.map(({ sizeBytes }) => new Uint8Array(sizeBytes).fill(3)),
        opened,
      )
      .then(
        () => 'written',
        () => 'refused',
      );
    const end = await storage.commit('before', tokens).catch(({ code }) => code);
    if (refused === 'refused') expect(['interrupted', 'TKV_STATE']).toContain(end);
    storage.pool.deallocate(opened);
    const again = storage.pool.allocate(asked('after', 'a'));
    const open = again.filter(({ isSealed }) => !isSealed);
    await storage.writeBlocks(
      open.map(({ sizeBytes }) => new Uint8Array(sizeBytes).fill(5)),
      open,
    );
    expect(await storage.commit('after', tokens)).toBe('done');
    for (const bytes of await storage.readBlocks(open)) expect(bytes.every((byte) => byte === 5)).toBe(true);
  });
});

describe('what was not written is not published by', () => {
  it('reuse: commit without ready is refused, and so are other tokens than tryReuse had', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(4), ddrBytes: undefined, migration: false });
    const v = await kv.begin(tokens, { tenant: 'v' });
    for (const { index } of kv.openBlocks(v)) kv.writeBlock(v, index, new Uint8Array(BLOCK).fill(0xaa));
    expect(await kv.seal(v)).toBe('done');
    kv.release(v);
    const cache = kv.crossRequestCache();
    cache.tryReuse('r', tokens, 'u');
    expect(cache.allocate('r', 64)).toBe(true);
    expect(() => cache.commit('r', tokens, null, true, 'u')).toThrow(
      expect.objectContaining({ code: 'TKV_STATE' }),
    );
    const table = cache.sequenceOf('r');
    await kv.ready(table);
    const other = tokens.map((token) => token + 500);
    expect(() => cache.commit('r', other, null, true, 'u')).toThrow(
      expect.objectContaining({ code: 'TKV_INPUT', field: 'tokenIds[0]' }),
    );
    expect(kv.lookup(tokens, { tenant: 'u' }).blocks).toBe(0);
    expect(kv.lookup(other, { tenant: 'u' }).blocks).toBe(0);
    writeTable(kv, table, 0x11);
    cache.commit('r', tokens, null, true, 'u');
    await kv.idle();
    cache.release('r');
    expect(kv.lookup(tokens, { tenant: 'u' }).blocks).toBe(4);
  });

  it('a tiered storage whose kernels were not told where; then what they write is found', async () => {
    await using storage = await TieredKVStorage.open(storageConfig);
    const opened = storage.pool.allocate(asked('a', 'alice'));
    await expect(storage.commit('a', tokens)).rejects.toMatchObject({ code: 'TKV_STATE' });
    const { slabs, entries, blocks: count } = await storage.ready(opened);
    for (let i = 0; i < count; i++) {
      const bytes = new Uint8Array(BLOCK).fill(0x33);
      storage.device.queue.writeBuffer(slabs[entries[2 * i]], entries[2 * i + 1], bytes);
    }
    expect(await storage.commit('a', tokens)).toBe('done');
    for (const bytes of await storage.readBlocks(opened, 'ddr'))
      expect(bytes.every((byte) => byte === 0x33)).toBe(true);
  });

  it('a tiered storage: commit without a write is refused, and growth counts as written when it is', async () => {
    await using storage = await TieredKVStorage.open(storageConfig);
    const [a] = storage.pool.allocate(asked('a', 'alice', 10));
    await expect(storage.commit('a', tokens.slice(0, 10), { tail: true })).rejects.toMatchObject({
      code: 'TKV_STATE',
    });
    await storage.writeBlocks([new Uint8Array(a.sizeBytes).fill(1)], [a]);
    storage.pool.allocate({
      sequenceId: 'a',
      requestId: 'a',
      numTokens: 6,
      layerIds: [0, 1],
      tenant: 'alice',
    });
    await expect(storage.commit('a', tokens.slice(0, 16))).rejects.toMatchObject({ code: 'TKV_STATE' });
    await storage.writeBlocks([new Uint8Array(a.sizeBytes).fill(2)], [a]);
    expect(await storage.commit('a', tokens.slice(0, 16))).toBe('done');
    // a fork goes on from what was written
    const forked = storage.pool.fork('a', 'b', 'b', 10);
    await storage.idle();
    expect(await storage.commit('b', tokens.slice(0, 10), { tail: true })).toBe('done');
    expect((await storage.readBlocks(forked))[0].every((byte) => byte === 2)).toBe(true);
  });
});

describe('no byte of another tenant lies in an open block of', () => {
  const words = async (kv: KVRuntime, table: Parameters<KVRuntime['places']>[0]): Promise<number> => {
    const { slabs, entries, blocks: count } = kv.places(table);
    let seen = 0;
    for (let i = 0; i < count; i++) {
      const place = { buffer: slabs[entries[2 * i]], offsetBytes: entries[2 * i + 1], sizeBytes: BLOCK };
      seen += (await deviceBytes(kv.device, place)).filter((byte) => byte === 0xaa).length;
    }
    return seen;
  };
  const filled = async (scrub: boolean): Promise<KVRuntime> => {
    const kv = await openRuntime({ hbmBytes: blocks(4), ddrBytes: undefined, migration: false, scrub });
    const v = await kv.begin(tokens, { tenant: 'v' });
    for (const { index } of kv.openBlocks(v)) kv.writeBlock(v, index, new Uint8Array(BLOCK).fill(0xaa));
    await kv.seal(v);
    kv.release(v);
    return kv;
  };

  it.each([
    [true, 0],
    [false, 4 * BLOCK],
  ])('reuse, before it is ready (scrub %s: %i bytes)', async (scrub, expected) => {
    await using kv = await filled(scrub);
    const cache = kv.crossRequestCache();
    cache.tryReuse('r', tokens, 'u');
    cache.allocate('r', 64);
    expect(await words(kv, cache.sequenceOf('r'))).toBe(expected);
    cache.release('r');
  });

  it('a paged cache, nor of an earlier one', async () => {
    await using kv = await filled(true);
    const first = kv.pagedCache();
    const taken = first.allocateBlock(4);
    const half = BLOCK / 2;
    for (const block of taken) {
      expect((await first.getBlockData(block)).keyCache.every((byte) => byte === 0)).toBe(true);
      const data = {
        keyCache: new Uint8Array(half).fill(9),
        valueCache: new Uint8Array(half),
        tokenCount: 16,
      };
      await first.storeBlockData(block, data);
    }
    first[Symbol.dispose]();
    using second = kv.pagedCache();
    for (const block of second.allocateBlock(4)) {
      expect((await second.getBlockData(block)).keyCache.every((byte) => byte === 0)).toBe(true);
    }
  });

  it('a tiered storage: what was never written is not read, with tokens and without', async () => {
    await using storage = await TieredKVStorage.open({
      ...storageConfig,
      tiers: [{ tier: 'hbm', capacityBytes: blocks(8) }],
    });
    const a = storage.pool.allocate(asked('a', 'alice'));
    await storage.writeBlocks(
      a.map(({ sizeBytes }) => new Uint8Array(sizeBytes).fill(0xaa)),
      a,
    );
    expect(await storage.commit('a', tokens)).toBe('done');
    storage.pool.deallocate(a);
    const { tokenIds, ...request } = asked('b', 'bob', 128);
    const b = storage.pool.allocate(request);
    await expect(storage.readBlocks(b)).rejects.toMatchObject({ code: 'TKV_STATE' });
    await expect(storage.commit('b')).rejects.toMatchObject({ code: 'TKV_STATE' });
    await expect(storage.readBlocks(b)).rejects.toMatchObject({ code: 'TKV_STATE' });
    expect(tokenIds).toBe(tokens);
  });
});
