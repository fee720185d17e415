import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { Granularity } from '../../../src/runtime/geometry/box.ts';
import { Tier } from '../../../src/runtime/index.ts';
import type { KVBlockDescriptor } from '../../../src/views/index.ts';
import type { TierConfig, TieredStorageConfig } from '../../../src/views/tieredConfig.ts';
import type { TieredKVStorage } from '../../../src/views/tieredKVStorage.ts';
import {
  allLayers,
  blockSize,
  blocks,
  bytesOf,
  dataOf,
  files,
  layout,
  openStorage,
  same,
} from './liveStorage.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-tiered-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const freshDir = (): string => mkdtempSync(join(dir, 'files-'));
const threeTiers: readonly TierConfig[] = [
  { tier: 'hbm', capacityBytes: blocks(32) },
  { tier: 'ddr', capacityBytes: blocks(32) },
  { tier: 'nvme', capacityBytes: files(64), path: freshDir() },
];
const ids = (count: number): number[] => Array.from({ length: count }, (_, i) => 7 + i);

async function compute(
  storage: TieredKVStorage,
  sequenceId: string,
  seed: number,
  more: object = {},
): Promise<KVBlockDescriptor[]> {
  const request = { sequenceId, requestId: 'r', layerIds: allLayers, numTokens: 10, ...more };
  const fresh = storage.pool.allocate(request);
  await storage.writeBlocks(
    fresh.map((block) => dataOf(block, seed)),
    fresh,
  );
  expect(await storage.commit(sequenceId, undefined, { tail: true })).toBe('done');
  return fresh;
}

describe('on a software device, host memory and files', () => {
  it('a block that is open and was not written says so, whatever lay in its place before', async () => {
    await using storage = await openStorage();
    const { pool } = storage;
    for (let round = 0; round < 3; round++) {
      const open = pool.allocate({ sequenceId: 'open', requestId: 'r', layerIds: allLayers, numTokens: 10 });
      const box = { layerStart: 0, layerEnd: 4, headStart: 0, headEnd: 2, tokenStart: 0, tokenEnd: 10 };
      const refused = {
        code: 'TKV_STATE',
        field: 'blocks',
        message: expect.stringMatching(/not written yet/),
      };
      await expect(storage.readBlocks(open)).rejects.toMatchObject(refused);
      await expect(storage.readBox('open', box)).rejects.toMatchObject(refused);
      // one of them is not enough for the others
      await storage.writeBlocks([dataOf(open[0], 3)], [open[0]]);
      expect(same((await storage.readBlocks([open[0]]))[0], dataOf(open[0], 3))).toBe(true);
      await expect(storage.readBlocks(open)).rejects.toMatchObject(refused);
      pool.deallocate(open);
      const mine = await compute(storage, `fill ${round}`, round, { numTokens: 30 * blockSize });
      pool.deallocate(mine);
      await storage.idle();
    }
  });

  it.each([
    ['BLOCK', {}],
    ['TOKEN', { granularity: Granularity.TOKEN }],
    ['HEAD', { granularity: Granularity.HEAD, layerIds: [1, 3], headIds: [1] }],
    ['LAYER', { granularity: Granularity.LAYER, layerIds: [0, 2] }],
  ])('%s blocks go to every tier and back with their bytes', async (_, more) => {
    await using storage = await openStorage({ tiers: threeTiers });
    const mine = await compute(storage, 'a', 1, more);
    const other = await compute(storage, 'b', 2, more);
    for (const tier of ['ddr', 'nvme', 'hbm', 'nvme', 'ddr', 'hbm'] as const) {
      const read = await storage.readBlocks(mine, tier);
      mine.forEach((block, i) => {
        expect(same(read[i], dataOf(block, 1)), `${tier} ${block.tokenRange}`).toBe(true);
      });
      expect(new Set(mine.map((block) => block.tier))).toEqual(new Set([Tier[upper(tier)]]));
      storage.pool.checkIntegrity();
    }
    const [untouched] = await storage.readBlocks(other.slice(0, 1));
    expect(same(untouched, dataOf(other[0], 2))).toBe(true);
    expect(mine[0].accessCount).toBeGreaterThan(6);
  });

  it('a box is read rightly while some heads of some layers are above and the rest below', async () => {
    await using storage = await openStorage({ tiers: threeTiers });
    const head = { granularity: Granularity.HEAD, numTokens: 9 };
    const near = await compute(storage, 'a', 5, { ...head, layerIds: [1, 2], headIds: [0] });
    const far = await compute(storage, 'a', 5, { ...head, layerIds: [1, 2], headIds: [1] });
    const rest = await compute(storage, 'a', 5, { ...head, layerIds: [0, 3] });
    await storage.readBlocks(far, 'ddr');
    await storage.readBlocks(rest, 'nvme');
    expect([near[0].tier, far[0].tier, rest[0].tier]).toEqual([Tier.HBM, Tier.DDR, Tier.NVME]);
    for (const box of [
      { layerStart: 0, layerEnd: 4, headStart: 0, headEnd: 2, tokenStart: 0, tokenEnd: 9 },
      { layerStart: 1, layerEnd: 4, headStart: 1, headEnd: 2, tokenStart: 3, tokenEnd: 8 },
      { layerStart: 0, layerEnd: 2, headStart: 0, headEnd: 2, tokenStart: 8, tokenEnd: 9 },
    ]) {
      expect(same(await storage.readBox('a', box), bytesOf(box, 5))).toBe(true);
    }
    expect([near[0].tier, far[0].tier, rest[0].tier], 'reading moved nothing').toEqual([0, 1, 2]);
    const beyond = { layerStart: 0, layerEnd: 1, headStart: 0, headEnd: 1, tokenStart: 8, tokenEnd: 12 };
    await expect(storage.readBox('a', beyond)).rejects.toThrow(/box has layers, heads or tokens/);
  });

  it('a window of layers beside full attention is moved and read by itself', async () => {
    const layerGroups = [
      { first: 0, end: 3 },
      { first: 3, end: 4 },
    ];
    await using storage = await openStorage({
      tiers: [...threeTiers.slice(0, 2), { ...threeTiers[2], path: freshDir() }],
      pool: poolWith({ layerGroups }),
    });
    const window = await compute(storage, 'a', 9, { layerIds: [0, 1, 2] });
    await compute(storage, 'a', 9, { layerIds: [3] });
    await storage.readBlocks(window.slice(0, 2), 'nvme');
    const box = { layerStart: 1, layerEnd: 4, headStart: 0, headEnd: 2, tokenStart: 2, tokenEnd: 10 };
    expect(same(await storage.readBox('a', box), bytesOf(box, 9))).toBe(true);
  });

  it('blocks of equal tokens share their bytes, and a fork goes on with its own', async () => {
    await using storage = await openStorage();
    const tokenIds = ids(10);
    const ask = { requestId: 'r', layerIds: allLayers, numTokens: 10, tokenIds };
    const first = storage.pool.allocate({ ...ask, sequenceId: 'a' });
    await storage.writeBlocks(
      first.map((block) => dataOf(block, 3)),
      first,
    );
    await storage.commit('a', tokenIds, { tail: true });
    const second = storage.pool.allocate({ ...ask, sequenceId: 'b' });
    expect(second.map(({ isShared }) => isShared)).toEqual([true, true, false]);
    const read = await storage.readBlocks(second.slice(0, 2), 'ddr');
    expect(same(read[1], dataOf(second[1], 3))).toBe(true);
    storage.pool.fork('a', 'c', 'r', 10);
    storage.pool.allocate({ requestId: 'r', layerIds: allLayers, sequenceId: 'c', numTokens: 2 });
    const tail = storage.pool.getBlocksBySequence('c')[2];
    await storage.writeBlocks([dataOf(tail, 4)], [tail]);
    await storage.commit('c', [...tokenIds, 1, 2]);
    expect(same((await storage.readBlocks([tail], 'ddr'))[0], dataOf(tail, 4))).toBe(true);
    expect(same((await storage.readBlocks([first[2]]))[0], dataOf(first[2], 3))).toBe(true);
    storage.pool.checkIntegrity();
  });

  it('an earlier run’s blocks are found again in the files, also by their tokens, and not by another key', async () => {
    const tokenIds = ids(8);
    const ask = { requestId: 'r', sequenceId: 'a', layerIds: allLayers, numTokens: 8, tokenIds };
    const tiers = [threeTiers[0], { ...threeTiers[2], path: freshDir() }];
    {
      await using storage = await openStorage({ tiers });
      const fresh = storage.pool.allocate(ask);
      await storage.writeBlocks(
        fresh.map((block) => dataOf(block, 6)),
        fresh,
      );
      await storage.commit('a', tokenIds);
      await storage.readBlocks(fresh, 'nvme');
    }
    {
      await using storage = await openStorage({ tiers });
      const found = storage.pool.allocate(ask);
      expect(
        found.map(({ tier }) => tier),
        'the start has not wiped them',
      ).toEqual([Tier.NVME, Tier.NVME]);
      const read = await storage.readBlocks(found);
      expect(same(read[1], dataOf(found[1], 6))).toBe(true);
    }
    await using forgetful = await openStorage({ tiers, restart: 'empty' });
    expect(forgetful.pool.queryByPrefix(tokenIds)).toEqual([]);
  });
});

describe('a backend', () => {
  it('of each tier reads and writes whole units, and refuses a place that has moved on', async () => {
    await using storage = await openStorage({ tiers: threeTiers });
    const [block] = await compute(storage, 'a', 1);
    for (const [i, tier] of (['hbm', 'ddr', 'nvme'] as const).entries()) {
      await storage.readBlocks([block], tier);
      const backend = storage.backends[i];
      const [place] = block.places;
      if (place === undefined) throw new Error('it has a place');
      const key = block.units[0].track.keyOf(0) as Uint32Array;
      const digest = storage.pool.manager.inspect.digestOf(key);
      const [read] = await backend.read([{ place, key, digest }]);
      expect(same(read, dataOf(block, 1)), tier).toBe(true);
      expect(backend.tier).toBe(tier);
      expect(backend.freeBytes).toBeLessThan(backend.capacityBytes);
      const wrong = { place, key, digest: { lo: 1, hi: 2 } };
      await expect(backend.read([wrong]), tier).rejects.toMatchObject({ code: 'TKV_MISMATCH' });
      if (place.generation === 1) continue;
      const old = { place: { ...place, generation: place.generation - 1 }, key, digest };
      await expect(backend.read([old]), tier).rejects.toMatchObject({ code: 'TKV_STALE' });
    }
  });

  it('is there for each tier that is configured, and for no other', async () => {
    await using storage = await openStorage({ tiers: threeTiers.slice(0, 2) });
    expect(storage.backends.map(({ tier }) => tier)).toEqual(['hbm', 'ddr']);
    const [block] = await compute(storage, 'a', 1);
    await expect(storage.readBlocks([block], 'nvme')).rejects.toThrow(
      /targetTier is nvme, which is not configured/,
    );
    await expect(storage.readBlocks([block], 'dd' as never)).rejects.toThrow(/targetTier is "dd"/);
  });
});

describe('usage and latency', () => {
  it('are those of the tier', async () => {
    await using storage = await openStorage({
      tiers: [threeTiers[0], { ...threeTiers[1], bandwidthGbps: 2, latencyUs: 10 }, threeTiers[2]],
      links: { nvmeToHbm: { baseLatencyUs: 100, bandwidthBytesPerS: 1e9, delayUs: 20 } },
    });
    const mine = await compute(storage, 'a', 1);
    await storage.readBlocks(mine.slice(0, 1), 'ddr');
    const hbm = storage.getTierUsage('hbm');
    expect(hbm).toMatchObject({ tier: 'hbm', used: 2 * layout.blockBytes, numBlocks: 2 });
    expect(hbm.used + hbm.free).toBe(hbm.capacity);
    expect(storage.getTierUsage('ddr').used).toBe(layout.blockBytes);
    expect(storage.getEstimatedLatency('ddr', 4e6)).toBe(10 + 2000);
    expect(storage.getEstimatedLatency('nvme', 1e6), 'as calibrated').toBe(120 + 1000);
    expect(storage.getEstimatedLatency('hbm', 1e6)).toBe(0);
    expect(() => storage.getEstimatedLatency('ddr', -1)).toThrow(/bytes is -1/);
  });

  it('that was never measured is an error with its remedy', async () => {
    await using storage = await openStorage();
    expect(() => storage.getEstimatedLatency('ddr', 1)).toThrow(
      /ddr.bandwidthGbps is not set.*tierkv calibrate/,
    );
  });
});

describe('bad input is refused, and nothing changes', () => {
  it('data that does not fit, blocks that were let go, committed or never written', async () => {
    await using storage = await openStorage();
    const request = { sequenceId: 'a', requestId: 'r', layerIds: allLayers, numTokens: 8 };
    const fresh = storage.pool.allocate(request);
    const data = fresh.map((block) => dataOf(block, 1));
    await expect(storage.writeBlocks(data.slice(1), fresh)).rejects.toThrow(/data has 1 parts for 2 blocks/);
    await expect(storage.writeBlocks([data[0], data[1].subarray(4)], fresh)).rejects.toThrow(/data\[1\] has/);
    await expect(storage.readBlocks(fresh)).rejects.toMatchObject({ code: 'TKV_STATE' });
    await expect(storage.readBlocks(fresh, 'ddr')).rejects.toThrow(/did not come to ddr: not sealed yet/);
    await storage.writeBlocks(data, fresh);
    expect(same((await storage.readBlocks(fresh))[1], data[1]), 'not committed yet').toBe(true);
    await storage.commit('a');
    await expect(storage.writeBlocks(data, fresh)).rejects.toThrow(/are committed/);
    storage.pool.deallocate(fresh);
    await expect(storage.readBlocks(fresh)).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID' });
    await expect(storage.commit('a')).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID' });
    storage.pool.checkIntegrity();
  });

  it('invalid tiers', async () => {
    const open = (tiers: readonly object[]): Promise<unknown> =>
      openStorage({ tiers: tiers as TierConfig[] });
    await expect(open([threeTiers[1]])).rejects.toThrow(/tiers have no hbm/);
    await expect(open([{ tier: 'hmb', capacityBytes: 1 }])).rejects.toThrow(/Did you mean 'hbm'/);
    await expect(open([threeTiers[0], threeTiers[0]])).rejects.toThrow(/tiers\[1\].tier is hbm again/);
    await expect(open([{ tier: 'hbm', capacityBytes: -5 }])).rejects.toThrow(
      /tiers\[0\].capacityBytes is -5/,
    );
    await expect(open([threeTiers[0], { tier: 'nvme', capacityBytes: 9999 }])).rejects.toThrow(
      /nvme.path is/,
    );
    await expect(open([{ ...threeTiers[0], bandwidthGbps: 0 }])).rejects.toThrow(
      /tiers\[0\].bandwidthGbps is 0/,
    );
  });
});

it('a full tier says so, and what was to go there stays where it was', async () => {
  await using storage = await openStorage({
    tiers: [threeTiers[0], { tier: 'ddr', capacityBytes: blocks(2) }],
    pool: poolWith({ landingShare: 0 }),
  });
  const mine = await compute(storage, 'a', 1, { numTokens: 3 * blockSize });
  await storage.readBlocks(mine.slice(0, 2), 'ddr');
  await expect(storage.readBlocks(mine, 'ddr')).rejects.toMatchObject({ code: 'TKV_FULL' });
  expect(mine.map(({ tier }) => tier)).toEqual([Tier.DDR, Tier.DDR, Tier.HBM]);
  expect(same((await storage.readBlocks([mine[2]]))[0], dataOf(mine[2], 1))).toBe(true);
});

it('a migrator on real tiers moves what is cold, with its bytes, and says how it went', async () => {
  await using storage = await openStorage({ tiers: threeTiers });
  const mine = await compute(storage, 'a', 1, { numTokens: 4 * blockSize });
  const plans = mine.map(({ blockId, tier }) => ({ blockId, fromTier: tier, toTier: Tier.DDR, priority: 1 }));
  const results = await storage.executeMigrationAsync(plans, mine);
  expect(results.map(({ success, toTier }) => [success, toTier])).toEqual(Array(4).fill([true, Tier.DDR]));
  const down = mine
    .slice(0, 1)
    .map(({ blockId, tier }) => ({ blockId, fromTier: tier, toTier: Tier.NVME, priority: 1 }));
  expect(await storage.executeMigration(down, mine)).toMatchObject([{ success: true }]);
  expect(storage.migrator.getStats()).toMatchObject({ total: 5, hbmToDdr: 4, ddrToNvme: 1, failed: 0 });
  const read = await storage.readBlocks(mine);
  mine.forEach((block, i) => {
    expect(same(read[i], dataOf(block, 1))).toBe(true);
  });
});

it('a pool that fills has its cold blocks moved down by itself, unless that is off', async () => {
  for (const migration of [{ intervalUs: 1 }, false] as const) {
    await using storage = await openStorage({ tiers: threeTiers, migration });
    const mine = await compute(storage, 'a', 1, { numTokens: 30 * blockSize });
    const below = (): number => mine.filter(({ tier }) => tier === Tier.DDR).length;
    if (migration === false) {
      await storage.idle();
      expect(below()).toBe(0);
    } else {
      await vi.waitUntil(() => storage.getTierUsage('hbm').utilization < 0.9, { timeout: 120_000 });
      expect(below()).toBeGreaterThan(1);
    }
    const read = await storage.readBlocks(mine.slice(0, 1));
    expect(same(read[0], dataOf(mine[0], 1))).toBe(true);
  }
});

it('thresholds that cannot be are refused before files are opened: the directory stays free', async () => {
  const tiers = [
    ...threeTiers.slice(0, 2),
    { tier: 'nvme', capacityBytes: files(16), path: freshDir() },
  ] as const;
  const { pool } = withThreshold(-1);
  const wrong = { code: 'TKV_CONFIG', field: 'hotFrequencyThreshold' };
  await expect(openStorage({ tiers, pool })).rejects.toMatchObject(wrong);
  await using storage = await openStorage({ tiers, ...withThreshold(2) });
  expect(storage.migrator.classifier.hotFrequencyThreshold).toBe(2);
});

const withThreshold = (hotFrequencyThreshold: number): Pick<TieredStorageConfig, 'pool'> => ({
  pool: { layout, blockSize, model: 'test@1', secretKey: new Uint8Array(32).fill(7), hotFrequencyThreshold },
});

it('files that cannot be made durable at the end are closed all the same', async () => {
  const tiers: readonly TierConfig[] = [
    ...threeTiers.slice(0, 2),
    { tier: 'nvme', capacityBytes: files(16), path: freshDir() },
  ];
  const storage = await openStorage({ tiers });
  vi.spyOn(FileStore.prototype, 'sync').mockRejectedValueOnce(new Error('as a disk that fails'));
  await expect(storage.close()).rejects.toThrow('disk that fails');
  await using again = await openStorage({ tiers });
  expect(again.describe().nvme).toMatchObject({ store: 'file' });
});

function upper(tier: 'hbm' | 'ddr' | 'nvme'): 'HBM' | 'DDR' | 'NVME' {
  return tier === 'hbm' ? 'HBM' : tier === 'ddr' ? 'DDR' : 'NVME';
}

function poolWith(more: object) {
  return { layout, blockSize, model: 'test@1', secretKey: new Uint8Array(32).fill(7), ...more };
}
