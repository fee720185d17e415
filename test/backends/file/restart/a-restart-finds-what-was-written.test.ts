import { readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../../src/backends/file/opening.ts';
import type { StoreIdentity } from '../../../../src/backends/file/record.ts';
import { TierKVError } from '../../../../src/runtime/errors.ts';
import { type PoolShape, poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { Outcome, outcomeNames } from '../../../../src/runtime/tier/tier.ts';
import type { StoreItem } from '../../../../src/runtime/tier/tierStore.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../../src/testing/index.ts';
import { sized } from '../../../sized.ts';
import { crashed, editFile, scratchDir } from '../scratch.ts';

const KiB = 1024;
const shape = poolShape(256, 16 * KiB, [16 * KiB]);
const warm: FileStoreOptions = { restart: 'warm' };
const item = (slot: number, generation = 1): StoreItem => patternItem(shape, slot, 0, generation);
const range = (count: number, from = 0): number[] => Array.from({ length: count }, (_, i) => from + i);

async function close(store: FileStore): Promise<void> {
  await store[Symbol.asyncDispose]();
}

async function outcomes(store: FileStore, items: readonly StoreItem[]): Promise<string[]> {
  const targets = items.map((one) => emptyItem(one));
  const results = await store.read(targets);
  results.forEach((result, i) => {
    if (result.outcome === Outcome.LOADED) expect(mismatchedWords(targets[i])).toBe(0);
  });
  return results.map((result) => outcomeNames[result.outcome]);
}

/** What a store says that it recovered, which must be just what it serves. */
async function recoveredSlots(store: FileStore, pool: PoolShape = shape): Promise<Map<number, number>> {
  const found = new Map<number, number>();
  for (const { slot, sizeClass, generation, key, digest } of store.records()) {
    const wanted = patternItem(pool, slot, sizeClass, generation);
    expect({ key, digest }).toEqual({ key: wanted.key, digest: wanted.digest });
    const [end] = await outcomes(store, [wanted]);
    expect(end).toBe('loaded');
    found.set(slot, generation);
  }
  return found;
}

describe('a restart after a close', () => {
  it('finds every record, in the order of use, and reads no record for it', async () => {
    const dir = scratchDir();
    const first = await FileStore.open(dir, shape, warm);
    await first.write(range(40).map((slot) => item(slot)));
    await first.write([item(7, 2)]);
    for (const slot of [5, 3]) await first.read([emptyItem(item(slot))]);
    await close(first);

    await using second = await FileStore.open(dir, shape, warm);
    const order = second.records().map(({ slot }) => slot);
    expect(order.slice(-3)).toEqual([3, 5, 7].sort((a, b) => order.indexOf(a) - order.indexOf(b)));
    const wanted = range(40).map((slot) => [slot, slot === 7 ? 2 : 1] as const);
    expect(await recoveredSlots(second)).toEqual(new Map(wanted));
    expect(second.describe()).toMatchObject({
      recoveredFrom: 'checkpoint',
      recoveredClosed: true,
      recoveryReadBytes: 0,
      recoveryLeftovers: 0,
      records: 40,
    });
    expect(await outcomes(second, [item(7, 1), item(50)])).toEqual(['refused', 'missing']);
    second.checkIntegrity();
  });

  it('keeps tokens, generations of several sizes, and what was forgotten stays forgotten', async () => {
    const dir = scratchDir();
    const mixed = poolShape(8, 16 * KiB, [16 * KiB, 4 * KiB, 1000]);
    const first = await FileStore.open(dir, mixed, warm);
    const small = [0, 1, 2].map((slot) => ({ ...patternItem(mixed, slot, 1, 3), tokens: 16 }));
    await first.write(small);
    const tiny = patternItem(mixed, mixed.slotsPerPageMax + 4, 2, 9);
    await first.write([tiny]);
    await first.write([patternItem(mixed, 2 * mixed.slotsPerPageMax, 1, 1)]);
    await first.write([patternItem(mixed, 2 * mixed.slotsPerPageMax, 0, 2)]);
    await close(first);
    await using second = await FileStore.open(dir, mixed, warm);
    const found = second
      .records()
      .map(({ slot, sizeClass, generation, tokens }) => [slot, sizeClass, generation, tokens]);
    expect(found.sort((a, b) => a[0] - b[0])).toEqual([
      [0, 1, 3, 16],
      [1, 1, 3, 16],
      [2, 1, 3, 16],
      [mixed.slotsPerPageMax + 4, 2, 9, 0],
      [2 * mixed.slotsPerPageMax, 0, 2, 0],
    ]);
  });

  it('goes on with a tier that was made larger or smaller', async () => {
    const dir = scratchDir();
    const first = await FileStore.open(dir, shape, warm);
    await first.write(range(256).map((slot) => item(slot)));
    await close(first);
    const larger = await FileStore.open(dir, poolShape(2000, 16 * KiB, [16 * KiB]), warm);
    expect((await recoveredSlots(larger)).size).toBe(256);
    await larger.write([item(1999)]);
    await close(larger);
    const smaller = await FileStore.open(dir, poolShape(100, 16 * KiB, [16 * KiB]), warm);
    expect([...(await recoveredSlots(smaller)).keys()].sort((a, b) => a - b)).toEqual(range(100));
    expect(smaller.describe().physicalBytes).toBeLessThan(3 * 2 ** 20);
    await close(smaller);
    await using again = await FileStore.open(dir, shape, warm);
    expect((await recoveredSlots(again)).size).toBe(100);
  });
});

describe('a restart after a crash', () => {
  it('finds what was written since the checkpoint by reading those regions, and no others', async () => {
    const dir = scratchDir();
    const first = await FileStore.open(dir, shape, warm);
    await first.write(range(200).map((slot) => item(slot)));
    await first.checkpoint();
    await first.write([item(10, 2), item(250)]);
    await using second = await FileStore.open(crashed(dir), shape, warm);
    const wanted = range(200).map((slot) => [slot, slot === 10 ? 2 : 1] as const);
    expect(await recoveredSlots(second)).toEqual(new Map([...wanted, [250, 1] as const]));
    const { recoveryReadBytes, recoveryReadRegions, markedRegions } = second.describe();
    expect({ recoveryReadRegions, markedRegions }).toEqual({ recoveryReadRegions: 2, markedRegions: 0 });
    expect(recoveryReadBytes).toBeLessThan(2.1 * 2 ** 20);
    await close(first);
  });

  it('reads everything when the index is lost, cut off or of another store, and finds the same', async () => {
    for (const harm of ['lost', 'cut', 'foreign', 'zeroed'] as const) {
      const dir = scratchDir();
      const first = await FileStore.open(dir, shape, warm);
      await first.write(range(60).map((slot) => item(slot)));
      await close(first);
      const index = join(dir, 'tierkv.index');
      if (harm === 'lost') rmSync(index);
      if (harm === 'cut') truncateSync(index, 5000);
      if (harm === 'zeroed') editFile(index, 0, 4096, (bytes) => void bytes.fill(0));
      if (harm === 'foreign') editFile(index, 16, 8, (bytes) => void bytes.fill(9));
      const second = await FileStore.open(dir, shape, warm);
      expect((await recoveredSlots(second)).size, harm).toBe(60);
      expect(second.describe().recoveredFrom).not.toBe('checkpoint');
      await close(second);
      await using third = await FileStore.open(dir, shape, warm);
      expect(third.describe()).toMatchObject({ recoveredFrom: 'checkpoint', records: 60 });
    }
  });

  const seed = testSeed(17);
  it(`damage anywhere in the index never makes a wrong answer, nor loses a durable record (seed ${seed})`, async () => {
    const random = new SeededRandom(seed);
    let dir = scratchDir();
    let store = await FileStore.open(dir, shape, warm);
    const generations = new Map<number, number>();
    for (let round = 0; round < sized(15, 40); round++) {
      const slots = random.distinctBelow(256, 20);
      await store.write(
        slots.map((slot) => {
          generations.set(slot, (generations.get(slot) ?? 0) + 1);
          return item(slot, generations.get(slot));
        }),
      );
      if (random.chance(0.4)) await store.checkpoint();
      const isKilled = random.chance(0.5);
      if (isKilled) dir = crashed(dir);
      await close(store);
      const path = join(dir, 'tierkv.index');
      const bytes = readFileSync(path).byteLength;
      for (let flips = random.below(4); flips > 0; flips--) {
        editFile(path, random.below(bytes), 1, (one) => void (one[0] = one[0] ^ (1 << random.below(8))));
      }
      store = await FileStore.open(dir, shape, warm);
      expect(await recoveredSlots(store), `round ${round}`).toEqual(generations);
    }
    await close(store);
  });

  it('does not take up what a write left half done, old payload under a new header or the other way', async () => {
    const dir = scratchDir();
    const first = await FileStore.open(dir, shape, warm);
    await first.write(range(8).map((slot) => item(slot)));
    await first.checkpoint();
    await first.write(range(4).map((slot) => item(slot, 2)));
    const killed = crashed(dir);
    await close(first);
    const recordBytes = 20 * KiB;
    const at = (slot: number): number => 8192 + slot * recordBytes;
    const path = join(killed, 'tierkv.blocks');
    editFile(path, at(1) + 4096, 100, (bytes) => void bytes.fill(1)); // payload
    editFile(path, at(2) + 40, 1, (bytes) => void bytes.fill(0xee)); // header
    editFile(path, at(3), recordBytes, (bytes) => void bytes.fill(0)); // nothing arrived
    await using second = await FileStore.open(killed, shape, warm);
    const wanted = [[0, 2] as const, ...range(4, 4).map((slot) => [slot, 1] as const)];
    expect(await recoveredSlots(second)).toEqual(new Map(wanted));
    expect(second.describe().recoveryLeftovers).toBe(1);
    expect(await second.write([item(1, 3)])).toMatchObject([{ outcome: Outcome.LOADED }]);
  });

  it('never serves an older record of the same slot and generation, though it has the right key', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape, warm);
    await store.write([item(0)]);
    let old = new Uint8Array();
    editFile(join(dir, 'tierkv.blocks'), 8192, 20 * KiB, (bytes) => void (old = bytes.slice()));
    await store.write([item(0)]);
    editFile(join(dir, 'tierkv.blocks'), 8192, 20 * KiB, (bytes) => bytes.set(old));
    const [result] = await store.read([emptyItem(item(0))]);
    expect(result).toMatchObject({ outcome: Outcome.CORRUPT, reason: expect.stringContaining('older') });
    expect(store.records()).toEqual([]);
  });
});

describe('making a store for warm restarts', () => {
  it('names a disk that is too small, and leaves nothing', async () => {
    const dir = scratchDir();
    const tooLarge = poolShape(2 ** 30, 2 ** 20, [2 ** 20]);
    await expect(FileStore.open(dir, tooLarge, warm)).rejects.toMatchObject({
      code: 'TKV_IO',
      message: expect.stringContaining('ENOSPC'),
    });
    expect(readdirSync(dir)).toEqual([]);
  });

  it('begins anew after an earlier attempt was killed, whatever files it left', async () => {
    for (const left of [
      new Uint8Array(0),
      new Uint8Array(10_000),
      new TextEncoder().encode('TKVS and more'),
    ]) {
      const dir = scratchDir();
      writeFileSync(join(dir, 'tierkv.blocks.new'), left);
      writeFileSync(join(dir, 'tierkv.index.new'), new Uint8Array(5000));
      const store = await FileStore.open(dir, shape, warm);
      await store.write([item(3)]);
      await close(store);
      expect(readdirSync(dir).sort()).toEqual(['tierkv.blocks', 'tierkv.index']);
    }
  });

  it('does not touch a file of that name that another program made', async () => {
    for (const name of ['tierkv.blocks.new', 'tierkv.index', 'tierkv.index.new']) {
      const dir = scratchDir();
      writeFileSync(join(dir, name), 'mine');
      await expect(FileStore.open(dir, shape, warm)).rejects.toMatchObject({ code: 'TKV_MISMATCH' });
      expect(readFileSync(join(dir, name), 'utf8')).toBe('mine');
      expect(readdirSync(dir)).toEqual([name]);
    }
  });

  it('goes on when its directory vanishes', async () => {
    const dir = scratchDir();
    const store = await FileStore.open(dir, shape, warm);
    await store.write(range(20).map((slot) => item(slot)));
    rmSync(dir, { recursive: true });
    await store.write(range(20).map((slot) => item(slot, 2)));
    expect(
      new Set(
        await outcomes(
          store,
          range(20).map((slot) => item(slot, 2)),
        ),
      ),
    ).toEqual(new Set(['loaded']));
    await store.sync();
    await store.checkpoint();
    await close(store);
  });
});

describe('a restart with other settings', () => {
  const identity: StoreIdentity = {
    model: 'llama@1',
    layout: 'kv-layout layers=2',
    secretKey: 'k1',
    extras: '{}',
    epoch: 3,
  };

  async function written(): Promise<string> {
    const dir = scratchDir();
    const store = await FileStore.open(dir, shape, { ...warm, identity });
    await store.write(range(5).map((slot) => item(slot)));
    await close(store);
    return dir;
  }

  it.each([
    ['model', { model: 'llama@2' }, "model 'llama@1', not of model 'llama@2'"],
    ['layout', { layout: 'kv-layout layers=3' }, "'kv-layout layers=2', not of 'kv-layout layers=3'"],
    ['secretKey', { secretKey: 'k2' }, 'another secret key'],
    ['extras', { extras: '{"lora":"a"}' }, 'extras {}, not of extras {"lora":"a"}'],
  ])('refuses another %s by name, and touches nothing', async (field, change, says) => {
    const dir = await written();
    const before = readFileSync(join(dir, 'tierkv.blocks'));
    const error = await FileStore.open(dir, shape, { ...warm, identity: { ...identity, ...change } }).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(TierKVError);
    expect(error).toMatchObject({ code: 'TKV_MISMATCH', field, message: expect.stringContaining(says) });
    expect(readFileSync(join(dir, 'tierkv.blocks')).equals(before)).toBe(true);
    await using store = await FileStore.open(dir, shape, { ...warm, identity });
    expect((await recoveredSlots(store)).size).toBe(5);
  });

  it('refuses blocks of another size by name', async () => {
    const dir = await written();
    const other = FileStore.open(dir, poolShape(256, 8 * KiB, [8 * KiB]), { ...warm, identity });
    await expect(other).rejects.toMatchObject({
      code: 'TKV_MISMATCH',
      field: 'layout',
      message: expect.stringMatching(/pages of 16384 bytes .* not of pages of 8192 bytes/),
    });
  });

  it('forgets blocks of an earlier epoch instead', async () => {
    const dir = await written();
    await using store = await FileStore.open(dir, shape, { ...warm, identity: { ...identity, epoch: 4 } });
    expect(store.records()).toEqual([]);
    expect(await outcomes(store, [item(0)])).toEqual(['missing']);
  });

  it('begins empty if `restart` is empty, and removes all old records', async () => {
    const dir = await written();
    const store = await FileStore.open(dir, shape);
    expect(store.records()).toEqual([]);
    await close(store);
    expect(readdirSync(dir)).toEqual(['tierkv.blocks']);
  });
});

describe('the order of last use', () => {
  /** Block `i` of a chain, whose key and whose parent's key are made of its number. */
  const linked = (slot: number, chain: number, i: number): StoreItem => ({
    ...patternItem(chainShape, slot, 0, 1),
    key: Uint32Array.of(chain, i, 0, 7),
    parent: i === 0 ? new Uint32Array(4) : Uint32Array.of(chain, i - 1, 0, 7),
  });
  const chainShape = poolShape(12, 4096, [4096]);

  it.each([
    ['first to last', [0, 1, 2, 3]],
    ['last to first', [3, 2, 1, 0]],
    ['in no order', [2, 0, 3, 1]],
  ])('has a block behind all that continue it, where blocks were written %s', async (_, order) => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, chainShape, { restart: 'warm' });
    let slot = 0;
    for (const chain of [1, 2]) for (const i of order) await store.write([linked(slot++, chain, i)]);
    // a block whose parent was never written, and an older copy of a block that is there
    await store.write([linked(slot++, 3, 2)]);
    await store.write([linked(slot++, 2, 3)]);
    const found = store.records().map(({ key }) => [key[0], key[1]]);
    expect(found).toHaveLength(10);
    const positions = (chain: number): number[] =>
      [3, 2, 1, 0].map((i) => found.findLastIndex(([of, at]) => of === chain && at === i));
    for (const chain of [1, 2]) expect(positions(chain)).toEqual(positions(chain).toSorted((a, b) => a - b));
    expect(Math.max(...positions(1)), 'the chain used longest ago goes first').toBeLessThan(
      Math.min(...positions(2)),
    );
  });
});
