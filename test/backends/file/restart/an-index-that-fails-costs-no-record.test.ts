/**
 * The index beside the records: what it costs on the disk, and what becomes of a store whose index cannot be
 * written.
 */

import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { type DataFile, IoError } from '../../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import { StoreView } from '../../../../src/backends/file/inspect.ts';
import type { FileStoreOptions } from '../../../../src/backends/file/opening.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../../src/runtime/tier/tier.ts';
import type { StoreItem } from '../../../../src/runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords, patternItem, SeededRandom } from '../../../../src/testing/index.ts';
import { crashed, scratchDir, stopClock } from '../scratch.ts';

const KiB = 1024;
const shape = poolShape(256, 16 * KiB, [16 * KiB]);
const item = (slot: number, generation = 1): StoreItem => patternItem(shape, slot, 0, generation);
const items = (from: number, count: number, generation = 1): StoreItem[] =>
  Array.from({ length: count }, (_, i) => item(from + i, generation));

async function ends(
  store: FileStore,
  call: 'read' | 'write',
  list: readonly StoreItem[],
): Promise<Set<string>> {
  const targets = call === 'read' ? list.map((one) => emptyItem(one)) : list;
  const results = await store[call](targets);
  results.forEach((result, i) => {
    if (call === 'read' && result.outcome === 0) expect(mismatchedWords(targets[i])).toBe(0);
  });
  return new Set(results.map(({ outcome }) => outcomeNames[outcome]));
}

type Call = 'writev' | 'sync';
type Name = 'blocks' | 'index';

/** Lets a test stall or break calls by file and kind. */
class Trouble {
  fault: (name: Name, call: Call, at: number) => Promise<void> | undefined = () => undefined;
  readonly #held: (() => void)[] = [];

  /** Calls that are stalled. */
  get waiting(): number {
    return this.#held.length;
  }

  stall(): Promise<void> {
    return new Promise((resolve) => this.#held.push(resolve));
  }

  release(): void {
    this.fault = () => undefined;
    for (const resume of this.#held.splice(0)) resume();
  }

  wrapFile = (file: DataFile, name: Name): DataFile => ({
    readv: (parts, at) => file.readv(parts, at),
    writev: async (parts, at) => {
      await this.fault(name, 'writev', at);
      await file.writev(parts, at);
    },
    allocate: (at, bytes) => file.allocate(at, bytes),
    sync: async () => {
      await this.fault(name, 'sync', 0);
      await file.sync();
    },
    close: () => file.close(),
  });
}

async function open(dir: string, trouble: Trouble, options: FileStoreOptions = {}): Promise<FileStore> {
  return FileStore.open(dir, shape, { restart: 'warm', wrapFile: trouble.wrapFile, ...options });
}

/** What a start would find if the store crashed now, by slot. */
async function found(dir: string): Promise<Map<number, number>> {
  await using view = await StoreView.open(crashed(dir));
  expect((await view.check()).faults).toEqual([]);
  return new Map([...view.records()].map(({ slot, generation }) => [slot, generation]));
}

describe('the disk space of a store', () => {
  it('is what it was at the start, however often slots are written again', async () => {
    const dir = scratchDir();
    const random = new SeededRandom(5);
    await using store = await FileStore.open(dir, shape, {
      restart: 'warm',
      checkpointBytes: 1024 * KiB,
      syncBytes: 512 * KiB,
    });
    const bytes = (): number =>
      readdirSync(dir).reduce((sum, name) => sum + statSync(join(dir, name)).blocks * 512, 0);
    await store.write(items(0, 256));
    await store.checkpoint();
    await store.checkpoint();
    const before = bytes();
    const bound = Number(store.describe().fileBytesMax) + Number(store.describe().indexBytes);
    for (let generation = 2; generation < 20; generation++) {
      const slots = random.distinctBelow(256, 100);
      await store.write(slots.map((slot) => item(slot, generation)));
    }
    await store.checkpoint();
    expect(store.describe().checkpoints).toBeGreaterThan(5);
    expect(store.describe().durabilityPoints).toBeGreaterThan(10);
    expect(bytes()).toBe(before);
    expect(store.describe().physicalBytes).toBe(before);
    expect(before).toBeLessThanOrEqual(bound + 16 * KiB);
  });
});

describe('durability points', () => {
  it('cover many writes each, are taken without a call, and cost nothing while nothing is written', async () => {
    stopClock();
    const trouble = new Trouble();
    let syncs = 0;
    trouble.fault = (name, call) => {
      if (call === 'sync' && name === 'blocks') syncs++;
      return undefined;
    };
    await using store = await open(scratchDir(), trouble, { syncMs: 30, syncBytes: 2 ** 40 });
    const before = syncs;
    for (let slot = 0; slot < 100; slot++) await store.write([item(slot)]);
    expect(syncs).toBe(before);
    vi.advanceTimersByTime(30);
    await expect.poll(() => store.describe().unsyncedBytes).toBe(0);
    expect(syncs).toBe(before + 1);
    vi.advanceTimersByTime(10_000);
    await new Promise(setImmediate);
    expect(syncs).toBe(before + 1);
  });

  it('that the disk refuses are errors of `sync`, and counted', async () => {
    const trouble = new Trouble();
    const store = await open(scratchDir(), trouble);
    await store.write([item(0)]);
    trouble.fault = (_, call) => (call === 'sync' ? Promise.reject(new IoError('EIO', 'sync')) : undefined);
    await expect(store.sync()).rejects.toMatchObject({
      code: 'TKV_IO',
      message: expect.stringContaining('making writes durable failed with EIO'),
    });
    expect(store.describe()).toMatchObject({ indexLastError: 'EIO' });
    expect(await ends(store, 'read', [item(0)])).toEqual(new Set(['loaded']));
    trouble.release();
    await store.sync();
    expect(store.describe().unsyncedBytes).toBe(0);
    await store[Symbol.asyncDispose]();
  });
});

describe('an index that cannot be written', () => {
  for (const errno of ['EIO', 'ENOSPC', 'EROFS']) {
    it(`refuses writes to regions that are not marked (${errno}), and serves everything else`, async () => {
      const dir = scratchDir();
      const trouble = new Trouble();
      const store = await open(dir, trouble);
      await store.write(items(0, 20));
      trouble.fault = (name, call) =>
        name === 'index' && call === 'writev' ? Promise.reject(new IoError(errno, call)) : undefined;
      expect(await ends(store, 'write', items(10, 5, 2))).toEqual(new Set(['loaded'])); // marked already
      expect(await ends(store, 'write', items(200, 5))).toEqual(new Set(['refused']));
      expect(await ends(store, 'read', items(200, 5))).toEqual(new Set(['missing']));
      expect(await ends(store, 'read', [...items(0, 10), ...items(10, 5, 2)])).toEqual(new Set(['loaded']));
      await expect(store.checkpoint()).rejects.toMatchObject({ code: 'TKV_IO' });
      expect(store.describe()).toMatchObject({ indexLastError: errno });
      const wanted = Array.from(
        { length: 20 },
        (_, slot) => [slot, slot >= 10 && slot < 15 ? 2 : 1] as const,
      );
      expect(await found(dir)).toEqual(new Map(wanted));
      trouble.release();
      expect(await ends(store, 'write', items(200, 5))).toEqual(new Set(['loaded']));
      await store.checkpoint();
      expect((await found(dir)).size).toBe(25);
      await store[Symbol.asyncDispose]();
    });
  }

  it('leaves the checkpoint before it whole, wherever a new one fails', async () => {
    for (let failing = 1; failing <= 6; failing++) {
      const dir = scratchDir();
      const trouble = new Trouble();
      const store = await open(dir, trouble);
      await store.write(items(0, 100));
      await store.checkpoint();
      await store.write([...items(0, 10, 2), ...items(150, 10)]);
      let calls = 0;
      trouble.fault = (name) =>
        name === 'index' && ++calls === failing ? Promise.reject(new IoError('EIO', 'index')) : undefined;
      await store.checkpoint().catch(() => {});
      trouble.release();
      await store.write([item(240), item(5, 3)]);
      const wanted = new Map<number, number>();
      for (let slot = 0; slot < 100; slot++) wanted.set(slot, slot === 5 ? 3 : slot < 10 ? 2 : 1);
      for (let slot = 150; slot < 160; slot++) wanted.set(slot, 1);
      wanted.set(240, 1);
      expect(await found(dir), `failing call ${failing}`).toEqual(wanted);
      await store[Symbol.asyncDispose]();
    }
  });

  it('never keeps a write waiting past the deadline, and shows what is stuck', async () => {
    stopClock();
    const trouble = new Trouble();
    const store = await open(scratchDir(), trouble, { deadlineMs: 500 });
    await store.write(items(0, 5));
    trouble.fault = (name, call) => (name === 'index' && call === 'writev' ? trouble.stall() : undefined);
    const late = ends(store, 'write', items(200, 5));
    await expect.poll(() => trouble.waiting).toBe(1);
    vi.advanceTimersByTime(500);
    expect(await late).toEqual(new Set(['timedOut']));
    expect(store.describe().indexStuck).toBe(1);
    expect(store.describe().timedOut).toBe(5);
    expect(await ends(store, 'read', items(0, 5))).toEqual(new Set(['loaded']));
    expect(await ends(store, 'write', items(0, 5, 2))).toEqual(new Set(['loaded']));
    trouble.release();
    await expect.poll(() => store.describe().indexStuck).toBe(0);
    expect(await ends(store, 'write', items(200, 5, 2))).toEqual(new Set(['loaded']));
    await store[Symbol.asyncDispose]();
  });

  it('does not hold up the disposal beyond the deadline when the last fdatasync hangs', async () => {
    stopClock();
    const dir = scratchDir();
    const trouble = new Trouble();
    const store = await open(dir, trouble, { deadlineMs: 40 });
    await store.write(items(0, 5));
    trouble.fault = (_, call) => (call === 'sync' ? trouble.stall() : undefined);
    const closing = store[Symbol.asyncDispose]();
    await expect.poll(() => trouble.waiting).toBeGreaterThan(0);
    vi.advanceTimersByTime(40);
    await closing;
    await expect(FileStore.open(dir, shape)).rejects.toMatchObject({ code: 'TKV_LOCKED' });
    trouble.release();
    await expect
      .poll(() => FileStore.open(dir, shape, { restart: 'warm' }).catch(() => undefined))
      .toBeDefined();
  });
});
