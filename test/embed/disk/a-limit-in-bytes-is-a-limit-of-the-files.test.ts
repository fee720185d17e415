/**
 * What is given to the disk as bytes is the most that its files take, for any size of blocks, units and pages, through every
 * door that takes such a limit; and a limit that holds nothing is refused with the least that works.
 */

import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import { nvmeTier } from '../../../src/backends/file/fileTier.ts';
import { roomWithin } from '../../../src/backends/tierRow.ts';

import { KVRuntime, kvLayout } from '../../../src/index.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { blocksAsked, tierOptionsOf } from '../../../src/studies/replay/sizedTiers.ts';
import { patternItem, SeededRandom } from '../../../src/testing/index.ts';
import { TieredKVStorage } from '../../../src/views/index.ts';
import { testAdapter } from '../../adapter.ts';
import { scratchDir } from '../../backends/file/scratch.ts';

const fileBytes = (dir: string): number =>
  readdirSync(dir)
    .filter((name) => !name.includes('.lock'))
    .reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);
const layoutOf = (headDim: number, layers: number) =>
  kvLayout({ layers, kvHeads: 2, headDim, dtype: 'f16', blockTokens: 16 });
const configOf = (dir: string, headDim: number, layers: number, bytes: number) => ({
  layout: layoutOf(headDim, layers),
  model: 'm@1',
  secretKey: new Uint8Array(32).fill(3),
  ddrBytes: 8 * layoutOf(headDim, layers).blockBytes,
  nvme: { dir, bytes },
  notice: () => {},
});

const seed = 41;

describe(`files of a limit (seed ${seed})`, () => {
  it('stay below it with every slot written, and have no room for another page', async () => {
    const random = new SeededRandom(seed);
    for (let trial = 0; trial < 24; trial++) {
      const unitBytes = Array.from({ length: 1 + random.below(3) }, () => 4 * (1 + random.below(9000)));
      const pageBytes = Math.max(...unitBytes) * (1 + random.below(4)) + 4 * random.below(100);
      const least = nvmeTier.bytesOf?.(1, pageBytes, unitBytes) ?? 0;
      const bytes = least + random.below(20 * least);
      const room = roomWithin(nvmeTier, bytes, pageBytes, unitBytes);
      const what = `units ${unitBytes}, pages ${pageBytes}, limit ${bytes}`;
      expect(room, what).toBeGreaterThanOrEqual(pageBytes);
      expect(nvmeTier.bytesOf?.(room / pageBytes + 1, pageBytes, unitBytes), what).toBeGreaterThan(bytes);
      const shape = poolShape(room / pageBytes, pageBytes, unitBytes);
      const dir = scratchDir();
      await using store = await FileStore.open(dir, shape, { restart: 'warm' });
      const smallest = unitBytes.indexOf(Math.min(...unitBytes));
      const items = Array.from({ length: shape.pages }, (_, page) =>
        patternItem(shape, page * shape.slotsPerPageMax + shape.slotsPerPage[smallest] - 1, smallest, 1),
      );
      await store.write(items);
      await store.checkpoint();
      await store.checkpoint();
      expect(fileBytes(dir), what).toBeLessThanOrEqual(bytes);
    }
  });

  it.each([
    [8, 1],
    [64, 2],
    [128, 8],
  ])('hold for a runtime, which says how much fits (heads of %i, %i layers)', async (headDim, layers) => {
    const { blockBytes } = layoutOf(headDim, layers);
    const bytes = 40 * blockBytes + 100_000;
    const dir = scratchDir();
    await using kv = await KVRuntime.open(configOf(dir, headDim, layers, bytes));
    const { capacityBytes } = kv.manager.inspect.usage(1);
    const sequences = Math.ceil(kv.manager.inspect.pool(1).shape.slotLimit / 2) + 8;
    for (let prompt = 0; prompt < sequences; prompt++) {
      const tokens = Array.from({ length: 33 }, (_, i) => prompt * 100 + i);
      const sequence = await kv.begin(tokens, { tenant: 'a' });
      for (const { index } of kv.openBlocks(sequence))
        kv.writeBlock(sequence, index, (to) => to.fill(prompt + 1));
      await kv.seal(sequence);
      kv.release(sequence);
      await kv.idle();
    }
    await kv.save({ whenFull: 'replace' }).catch(() => {});
    expect(fileBytes(dir)).toBeLessThanOrEqual(bytes);
    expect(Number(kv.describe().nvme?.physicalBytes)).toBeLessThanOrEqual(bytes + 64 * 1024);
    expect(kv.manager.inspect.usage(1).residentBytes).toBeLessThanOrEqual(capacityBytes);
    expect(capacityBytes).toBeGreaterThanOrEqual(blockBytes);
  });

  it('that hold nothing are refused with the least that works', async () => {
    const refused = await KVRuntime.open(configOf(scratchDir(), 64, 2, 17_000)).catch(
      (error: Error) => error,
    );
    expect(refused).toMatchObject({ code: 'TKV_CONFIG', field: 'nvme.bytes' });
    const least = Number(/Give it (\d+) bytes/.exec((refused as Error).message)?.[1]);
    await expect(KVRuntime.open(configOf(scratchDir(), 64, 2, least - 1))).rejects.toThrow(/Give it/);
    const dir = scratchDir();
    await using kv = await KVRuntime.open(configOf(dir, 64, 2, least));
    expect(kv.manager.inspect.usage(1).capacityBytes).toBe(layoutOf(64, 2).blockBytes);
    expect(fileBytes(dir)).toBeLessThanOrEqual(least);
  });

  it('hold for commands: a size in bytes is blocks that fit, and a number of blocks gets its room', async () => {
    const { blockBytes } = layoutOf(64, 2);
    const blocks = blocksAsked('nvme', '4MiB', blockBytes);
    expect(blocks).toBeLessThan((4 * 2 ** 20) / blockBytes);
    expect(blocksAsked('nvme', '300', blockBytes)).toBe(300);
    expect(blocksAsked('ddr', '4MiB', blockBytes)).toBe((4 * 2 ** 20) / blockBytes);
    const dir = scratchDir();
    const { nvme } = tierOptionsOf([{ name: 'nvme', blocks, place: dir }], blockBytes);
    expect(nvme?.bytes).toBeLessThanOrEqual(4 * 2 ** 20);
    await using kv = await KVRuntime.open(configOf(dir, 64, 2, nvme?.bytes ?? 0));
    expect(kv.manager.inspect.pool(1).shape.pages).toBe(blocks);
    expect(fileBytes(dir)).toBeLessThanOrEqual(4 * 2 ** 20);
  });

  it('hold for TieredKVStorage, whose small units are padded most', async () => {
    const dir = scratchDir();
    const capacityBytes = 3_000_000;
    const open = (nvmeBytes: number) =>
      TieredKVStorage.open({
        adapter: testAdapter,
        pool: {
          layout: { layers: 2, kvHeads: 2, headDim: 8, dtype: 'f16' },
          blockSize: 16,
          model: 'm@1',
          secretKey: new Uint8Array(32).fill(1),
        },
        tiers: [
          { tier: 'hbm', capacityBytes: 2 ** 20 },
          { tier: 'ddr', capacityBytes: 2 ** 20 },
          { tier: 'nvme', path: dir, capacityBytes: nvmeBytes },
        ],
      });
    await expect(open(5000)).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'nvme.capacityBytes' });
    await using storage = await open(capacityBytes);
    expect(fileBytes(dir)).toBeLessThanOrEqual(capacityBytes);
    expect(fileBytes(dir), 'most of it is used').toBeGreaterThan(capacityBytes / 2);
    void storage;
  });
});
