/**
 * On a disk whose cache loses, at a sync that fails, what was to be synced, as Linux does: what a later sync or `prove` calls
 * durable is there after a loss of power, and what a disk did not write as it said is named.
 */

import { describe, expect, it } from 'vitest';
import { type DataFile, IoError } from '../../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../../src/backends/file/opening.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import type { StoreItem } from '../../../../src/runtime/tier/tierStore.ts';
import { patternItem, SeededRandom } from '../../../../src/testing/index.ts';
import { crashed, scratchDir } from '../scratch.ts';
import { VolatileFile } from '../volatileFile.ts';

const KiB = 1024;
const slots = 48;
const shape = poolShape(slots, 16 * KiB, [16 * KiB]);
const item = (slot: number, generation: number): StoreItem => patternItem(shape, slot, 0, generation);

/** A disk with a cache, whose syncs fail where the test says so. */
class CachedDisk {
  fails: (name: string) => boolean = () => false;
  /** From then on. */
  hasCache = false;
  readonly #forgets: boolean;

  constructor(forgets: boolean) {
    this.#forgets = forgets;
  }

  wrapFile = (real: DataFile, name: 'blocks' | 'index'): DataFile => {
    const file = new VolatileFile(real, { isOn: () => this.hasCache, forgets: () => this.#forgets });
    return {
      readv: (parts, at) => file.readv(parts, at),
      writev: (parts, at) => file.writev(parts, at),
      allocate: (at, bytes) => file.allocate(at, bytes),
      sync: async () => {
        if (!this.fails(name)) return await file.sync();
        file.syncFails();
        throw new IoError('EIO', 'fdatasync');
      },
      close: () => file.close(),
    };
  };
}

const options = (disk: CachedDisk): FileStoreOptions => ({
  restart: 'warm',
  wrapFile: disk.wrapFile,
  syncMs: 60_000,
});

/** What a start after a loss of power finds, and can read: generations by slot. */
async function afterPowerLoss(dir: string): Promise<Map<number, number>> {
  await using store = await FileStore.open(crashed(dir), shape, { restart: 'warm' });
  const found = new Map<number, number>();
  for (const { slot, generation } of store.records()) {
    const [{ reason }] = await store.read([{ ...item(slot, generation), bytes: new Uint8Array(16 * KiB) }]);
    expect(reason, `slot ${slot}`).toBe('');
    found.set(slot, generation);
  }
  return found;
}

describe.each([
  ['has still', false],
  ['has forgotten', true],
] as const)('what the cache %s after a failed sync', (_, forgets) => {
  it.each(['blocks', 'index'])('is written again before the next one counts (%s)', async (failing) => {
    const disk = new CachedDisk(forgets);
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape, options(disk));
    disk.hasCache = true;
    await store.write([0, 1, 2].map((slot) => item(slot, 1)));
    disk.fails = (name) => name === failing;
    await expect(store.prove()).rejects.toThrow(/EIO/);
    disk.fails = () => false;
    const damaged = (await store.prove()).map(({ slot }) => slot).sort();
    expect(damaged).toEqual(forgets && failing === 'blocks' ? [0, 1, 2] : []);
    const whole = [0, 1, 2].filter((slot) => !damaged.includes(slot));
    expect([...(await afterPowerLoss(dir)).keys()].sort()).toEqual(whole);
    store.checkIntegrity();
  });

  const seed = forgets ? 17 : 18;
  it(`is never called durable where it is not, in any order of writes, syncs and failures (seed ${seed})`, async () => {
    const random = new SeededRandom(seed);
    const disk = new CachedDisk(forgets);
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape, options(disk));
    disk.hasCache = true;
    const last = new Map<number, number>();
    const held = new Map<number, number>();
    let failures = 0;
    for (let round = 0; round < 60; round++) {
      const drawn = new Set(Array.from({ length: random.below(6) }, () => random.below(slots)));
      const written = [...drawn].map((slot) => item(slot, (last.get(slot) ?? 0) + 1));
      const failing = ['', 'blocks', 'index', 'both'][random.below(4)];
      disk.fails = (name) => failing === 'both' || name === failing;
      const kind = random.below(3);
      await Promise.all([
        store.write(written),
        ...(kind === 0 ? [store.checkpoint().catch(() => failures++)] : []),
        ...(kind === 1 ? [store.sync().catch(() => failures++)] : []),
      ]);
      for (const { slot, generation } of written) for (const map of [last, held]) map.set(slot, generation);
      if (random.below(3) > 0) continue;
      disk.fails = () => false;
      for (const { slot, generation } of await store.prove()) {
        if (held.get(slot) === generation) held.delete(slot);
      }
      const found = await afterPowerLoss(dir);
      for (const [slot, generation] of held) expect(found.get(slot), `slot ${slot}`).toBe(generation);
    }
    expect(failures).toBeGreaterThan(5);
    expect(held.size).toBeGreaterThan(5);
    store.checkIntegrity();
  });
});

it('what a disk did not write as it said is named once, and never found again; the rest stays', async () => {
  const dir = scratchDir();
  let lies = false;
  const wrapFile = (file: DataFile, name: 'blocks' | 'index'): DataFile => ({
    readv: (parts, at) => file.readv(parts, at),
    writev: (parts, at) =>
      lies && name === 'blocks' ? file.writev([parts[0].subarray(0, 4096)], at) : file.writev(parts, at),
    allocate: (at, bytes) => file.allocate(at, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  });
  await using store = await FileStore.open(dir, shape, { restart: 'warm', wrapFile, syncMs: 60_000 });
  await store.write([item(3, 1), item(9, 1)]);
  lies = true;
  await store.write([item(5, 1)]);
  const [{ reason }] = await store.write([{ ...item(7, 1), readBack: true }]);
  expect(reason).toMatch(/read back/);
  lies = false;
  expect(await store.prove()).toMatchObject([{ slot: 5, generation: 1 }]);
  expect(await store.prove()).toEqual([]);
  expect(
    store
      .records()
      .map(({ slot }) => slot)
      .sort(),
  ).toEqual([3, 9]);
  expect([...(await afterPowerLoss(dir)).keys()].sort()).toEqual([3, 9]);
  await store.write([item(5, 2)]);
  expect(await store.prove()).toEqual([]);
  expect((await afterPowerLoss(dir)).get(5)).toBe(2);
  store.checkIntegrity();
});
