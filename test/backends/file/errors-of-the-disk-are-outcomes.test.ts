import { copyFileSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { type DataFile, FileStore, IoError, type StuckIo } from '../../../src/backends/file/index.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/record/fileLayout.ts';
import { type PoolShape, poolShape } from '../../../src/runtime/pool/shape.ts';
import type { StoreItem, TierStore } from '../../../src/runtime/tier/tierStore.ts';
import { outcomeNames } from '../../../src/runtime/transfer/outcome.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { editFile, mountedDir, scratchDir, stopClock } from './scratch.ts';

const KiB = 1024;
const shape = poolShape(32, 16 * KiB, [16 * KiB, 4 * KiB]);
const item = (slot: number, generation = 1): StoreItem => patternItem(shape, slot, 0, generation);
const items = (count: number, generation = 1): StoreItem[] =>
  Array.from({ length: count }, (_, page) => item(page * shape.slotsPerPageMax, generation));

async function ends(store: TierStore, call: 'read' | 'write', ...list: StoreItem[]): Promise<string[]> {
  const targets = call === 'read' ? list.map((one) => emptyItem(one)) : list;
  const results = await store[call](targets);
  results.forEach((result, index) => {
    if (call === 'read' && result.outcome === 0) expect(mismatchedWords(targets[index])).toBe(0);
  });
  return results.map((result) =>
    [outcomeNames[result.outcome], /\bE[A-Z]+\b/.exec(result.reason)?.[0] ?? ''].join(' ').trim(),
  );
}

type Fault = (call: 'readv' | 'writev' | 'allocate', positionBytes: number) => Promise<void> | undefined;

/** Runs `fault` before each call; what it rejects with is what the call rejects with. */
function faulty(fault: Fault): (file: DataFile) => DataFile {
  return (file) => ({
    async readv(parts, at) {
      await fault('readv', at);
      await file.readv(parts, at);
    },
    async writev(parts, at) {
      await fault('writev', at);
      await file.writev(parts, at);
    },
    async allocate(at, bytes) {
      await fault('allocate', at);
      await file.allocate(at, bytes);
    },
    sync: () => file.sync(),
    close: () => file.close(),
  });
}

describe('file store, what lies on disk', () => {
  const pathIn = (dir: string): string => join(dir, 'tierkv.blocks');
  const offsetOf = (slot: number): number => recordOffset(fileLayout(shape), slot, 0);

  it('answers corrupt when any one of the 128 header bytes is damaged', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    await store.write([item(0)]);
    for (let byte = 0; byte < 128; byte++) {
      const damage = (): void =>
        editFile(pathIn(dir), offsetOf(0) + byte, 1, (one) => void (one[0] = one[0] ^ 0x81));
      damage();
      expect(await ends(store, 'read', item(0)), `header byte ${byte}`).toEqual(['corrupt']);
      damage();
    }
    expect(await ends(store, 'read', item(0))).toEqual(['loaded']);
  });

  it('answers corrupt when the disk swapped two records, or kept an older one', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    const [first, second] = items(2) as [StoreItem, StoreItem];
    await store.write([first, second]);
    const recordBytes = fileLayout(shape).records[0].recordBytes;
    let kept = new Uint8Array();
    editFile(pathIn(dir), offsetOf(first.slot), recordBytes, (bytes) => void (kept = bytes.slice()));
    editFile(pathIn(dir), offsetOf(second.slot), recordBytes, (bytes) => bytes.set(kept));
    expect(await ends(store, 'read', first, second)).toEqual(['loaded', 'corrupt']);

    await store.write([item(first.slot, 2)]);
    editFile(pathIn(dir), offsetOf(first.slot), recordBytes, (bytes) => bytes.set(kept));
    expect(await ends(store, 'read', item(first.slot, 2))).toEqual(['corrupt']);
  });

  it('does not serve a record from another place, even with the same content and key', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    const first = item(0);
    const alias = { ...first, slot: shape.slotsPerPageMax };
    await store.write([first, alias]);
    const recordBytes = fileLayout(shape).records[0].recordBytes;
    let misdirected = new Uint8Array();
    editFile(pathIn(dir), offsetOf(0), recordBytes, (bytes) => void (misdirected = bytes.slice()));
    editFile(pathIn(dir), offsetOf(alias.slot), recordBytes, (bytes) => bytes.set(misdirected));
    const results = await store.read([emptyItem(first), emptyItem(alias)]);
    expect(results.map((result) => outcomeNames[result.outcome])).toEqual(['loaded', 'corrupt']);
  });

  const seed = testSeed(88);
  it(`writes nothing to disk but records and zeros: no leftovers of other memory (seed ${seed})`, async () => {
    const random = new SeededRandom(seed);
    const dir = scratchDir();
    const pool = poolShape(16, 8 * KiB, [8 * KiB, 4 * KiB, 4 * KiB + 4, 1000]);
    const layout = fileLayout(pool);
    await using store = await FileStore.open(dir, pool, { mode: 'buffered', ioBytes: 4 * KiB });
    for (let generation = 1; generation <= 6; generation++) {
      const batch = random.distinctBelow(pool.pages, pool.pages).map((page) => {
        const one = patternItem(pool, page * pool.slotsPerPageMax, page % 4, generation);
        const elsewhere = new Uint8Array(one.bytes.byteLength + 1).subarray(1);
        elsewhere.set(one.bytes);
        return random.chance(0.5) ? one : { ...one, bytes: elsewhere };
      });
      expect(new Set(await ends(store, 'write', ...batch))).toEqual(new Set(['loaded']));
      for (let page = 0; page < pool.pages; page++) {
        const { recordBytes, payloadOffset, payloadBytes } = layout.records[page % 4];
        const at = recordOffset(layout, page * pool.slotsPerPageMax, page % 4);
        editFile(pathIn(dir), at, recordBytes, (bytes) => {
          const gaps = [
            ...bytes.subarray(128, payloadOffset),
            ...bytes.subarray(payloadOffset + payloadBytes),
          ];
          expect(gaps.length).toBe(recordBytes - 128 - payloadBytes);
          expect(gaps.findIndex((byte) => byte !== 0)).toBe(-1);
        });
      }
    }
  });

  it('does not take the records of another store for its own, though everything else agrees', async () => {
    const [dir, other] = [scratchDir(), scratchDir()];
    await using store = await FileStore.open(dir, shape);
    await using donor = await FileStore.open(other, shape);
    await store.write(items(4));
    await donor.write(items(4));
    copyFileSync(pathIn(other), pathIn(dir));
    expect(await ends(store, 'read', ...items(4))).toEqual(['corrupt', 'corrupt', 'corrupt', 'corrupt']);
  });

  it('answers corrupt when the file was cut off behind its back', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape);
    await store.write(items(8));
    truncateSync(pathIn(dir), offsetOf(4 * shape.slotsPerPageMax) + 6000);
    const wanted = [...Array(4).fill('loaded'), ...Array(4).fill('corrupt EOF')];
    expect(await ends(store, 'read', ...items(8))).toEqual(wanted);
  });

  it('goes on when its directory vanishes', async () => {
    const dir = scratchDir();
    const store = await FileStore.open(dir, shape, {
      allocation: 'extents',
      extentBytes: 4 * fileLayout(shape).pageStrideBytes,
    });
    await store.write(items(4));
    rmSync(dir, { recursive: true });
    expect(new Set(await ends(store, 'write', ...items(16, 2)))).toEqual(new Set(['loaded']));
    expect(new Set(await ends(store, 'read', ...items(16, 2)))).toEqual(new Set(['loaded']));
    await store[Symbol.asyncDispose]();
  });
});

describe('file store, when the disk refuses', () => {
  for (const errno of ['EIO', 'ENOSPC', 'EMFILE', 'EROFS', 'EDQUOT']) {
    it(`refuses with ${errno}, loses nothing else and goes on`, async () => {
      let broken: 'readv' | 'writev' | undefined;
      const wrapFile = faulty((call) =>
        call === broken ? Promise.reject(new IoError(errno, call)) : undefined,
      );
      await using store = await FileStore.open(scratchDir(), shape, { wrapFile });
      await store.write(items(6));
      broken = 'writev';
      expect(await ends(store, 'write', item(0, 2))).toEqual([`refused ${errno}`]);
      expect(await ends(store, 'read', item(0, 2))).toEqual(['missing']);
      broken = 'readv';
      expect(await ends(store, 'read', ...items(6).slice(1))).toEqual(Array(5).fill(`refused ${errno}`));
      broken = undefined;
      expect(await ends(store, 'read', ...items(6).slice(1))).toEqual(Array(5).fill('loaded'));
      expect(await ends(store, 'write', item(0, 2))).toEqual(['loaded']);
      expect(await ends(store, 'read', item(0, 2))).toEqual(['loaded']);
      expect(store.describe()).toMatchObject({ lastError: errno, stuck: 0 });
      store.checkIntegrity();
    });
  }

  it('fails only the record that is bad, not its neighbours in the same I/O', async () => {
    const single = poolShape(32, 16 * KiB, [16 * KiB]);
    const bad = recordOffset(fileLayout(single), 3, 0);
    let calls = 0;
    const wrapFile = (file: DataFile): DataFile => ({
      ...faulty(() => undefined)(file),
      async readv(parts, at) {
        calls += 1;
        const bytes = parts.reduce((sum, part) => sum + part.byteLength, 0);
        if (at <= bad && bad < at + bytes) throw new IoError('EIO', 'readv');
        await file.readv(parts, at);
      },
    });
    await using store = await FileStore.open(scratchDir(), single, { wrapFile });
    const eight = Array.from({ length: 8 }, (_, slot) => patternItem(single, slot, 0, 1));
    await store.write(eight);
    const wanted = eight.map((_, slot) => (slot === 3 ? 'refused EIO' : 'loaded'));
    expect(await ends(store, 'read', ...eight)).toEqual(wanted);
    expect(calls).toBe(1 + 8);
  });

  it('uses staging for memory that the device cannot reach', async () => {
    let unreachable = 0;
    const wrapFile = (file: DataFile): DataFile => ({
      ...faulty(() => undefined)(file),
      writev: async (parts, at) => {
        if (parts.length > 1 && unreachable++ < 4) throw new IoError('EFAULT', 'writev');
        await file.writev(parts, at);
      },
    });
    await using store = await FileStore.open(scratchDir(), shape, { wrapFile, mode: 'buffered' });
    expect(await ends(store, 'write', item(0))).toEqual(['loaded']);
    expect(unreachable).toBe(1);
    expect(await ends(store, 'read', item(0))).toEqual(['loaded']);
  });

  it('refuses what a full disk cannot hold, and keeps serving what it holds (tmpfs of 2 MiB)', async ({
    skip,
  }) => {
    const { dir, why } = mountedDir('tmpfs', 'size=2m');
    skip(why !== '', why);
    const large = poolShape(1024, 16 * KiB, [16 * KiB]);
    await using store = await FileStore.open(dir, large, { allocation: 'extents', extentBytes: 256 * KiB });
    const wanted = Array.from({ length: 200 }, (_, slot) => patternItem(large, slot, 0, 1));
    const written = await ends(store, 'write', ...wanted);
    expect(new Set(written)).toEqual(new Set(['loaded', 'refused ENOSPC']));
    const held = wanted.filter((_, slot) => written[slot] === 'loaded');
    expect(held.length * 20 * KiB).toBeGreaterThan(0.97 * 2 * KiB * KiB);
    expect(new Set(await ends(store, 'read', ...held))).toEqual(new Set(['loaded']));
  });

  it('refuses what a full disk cannot hold (injected)', async () => {
    const { pageStrideBytes } = fileLayout(shape);
    const wrapFile = (file: DataFile): DataFile => ({
      ...faulty(() => undefined)(file),
      async allocate(at, bytes) {
        if (at + bytes > 10.5 * pageStrideBytes) throw new IoError('ENOSPC', 'fallocate');
        await file.allocate(at, bytes);
      },
    });
    const options = { wrapFile, allocation: 'extents', extentBytes: 4 * pageStrideBytes } as const;
    await using store = await FileStore.open(scratchDir(), shape, options);
    const written = await ends(store, 'write', ...items(32));
    expect(written.filter((end) => end === 'loaded').length).toBe(10);
    expect(written.filter((end) => end === 'refused ENOSPC').length).toBe(22);
    expect(await ends(store, 'read', item(0))).toEqual(['loaded']);
  });
});

describe('file store, when an I/O never comes back', () => {
  interface Stall {
    readonly wrapFile: (file: DataFile) => DataFile;
    readonly stuck: StuckIo[];
    at: number | 'all' | undefined;
    /** I/Os that wait. */
    readonly waiting: () => number;
    release(): void;
  }

  function stall(): Stall {
    const held: (() => void)[] = [];
    const self: Stall = {
      stuck: [],
      at: undefined,
      waiting: () => held.length,
      wrapFile: faulty((call, at) =>
        call !== 'allocate' && (self.at === 'all' || self.at === at)
          ? new Promise((resolve) => held.push(resolve))
          : undefined,
      ),
      release() {
        self.at = undefined;
        for (const one of held.splice(0)) one();
      },
    };
    return self;
  }

  it('ends as timedOut only when it retires, and until then keeps its slot but no other', async () => {
    stopClock();
    const io = stall();
    const options = {
      wrapFile: io.wrapFile,
      deadlineMs: 40,
      onStuck: (one: StuckIo) => void io.stuck.push(one),
    };
    await using store = await FileStore.open(scratchDir(), shape, options);
    await store.write(items(4));
    io.at = recordOffset(fileLayout(shape), 0, 0);
    let done = false;
    const late = ends(store, 'write', item(0, 2)).finally(() => {
      done = true;
    });
    await expect.poll(io.waiting).toBe(1);
    vi.advanceTimersByTime(40);
    expect(io.stuck).toEqual([{ operation: 'write', slots: [0], retired: false }]);
    expect(store.describe().stuck).toBe(1);
    expect(await ends(store, 'read', ...items(4).slice(1))).toEqual(['loaded', 'loaded', 'loaded']);
    expect(await ends(store, 'read', item(0, 2))).toEqual(['refused']);
    expect(await ends(store, 'write', item(0, 3))).toEqual(['refused']);
    expect(done).toBe(false);
    io.release();
    expect(await late).toEqual(['timedOut']);
    expect(await ends(store, 'read', item(0, 2))).toEqual(['missing']);
    expect(io.stuck[1]).toEqual({ operation: 'write', slots: [0], retired: true });
    expect(store.describe()).toMatchObject({ stuck: 0, timedOut: 1 });
    expect(await ends(store, 'write', item(0, 2))).toEqual(['loaded']);
    expect(await ends(store, 'read', item(0, 2))).toEqual(['loaded']);
  });

  it('does not let queued requests wait for ever when every I/O is stuck', async () => {
    stopClock();
    const io = stall();
    const options = { wrapFile: io.wrapFile, deadlineMs: 30, queueDepth: 2, ioBytes: 16 * KiB };
    await using store = await FileStore.open(scratchDir(), shape, options);
    await store.write(items(8));
    io.at = 'all';
    const stuck = [ends(store, 'read', item(0)), ends(store, 'read', item(shape.slotsPerPageMax))];
    const queued = ends(store, 'read', ...items(8).slice(2));
    await expect.poll(io.waiting).toBe(2);
    vi.advanceTimersByTime(30);
    expect(await queued).toEqual(Array(6).fill('timedOut'));
    expect(await ends(store, 'read', ...items(8).slice(5))).toEqual(Array(3).fill('timedOut'));
    expect(store.describe().stuck).toBe(2);
    io.release();
    expect(await Promise.all(stuck)).toEqual([['timedOut'], ['timedOut']]);
    expect(await ends(store, 'read', ...items(8))).toEqual(Array(8).fill('loaded'));
    store.checkIntegrity();
  });

  it('lets its owner go after the deadline, and keeps the directory until the I/O retires', async () => {
    stopClock();
    const io = stall();
    const dir = scratchDir();
    const store = await FileStore.open(dir, shape, { wrapFile: io.wrapFile, deadlineMs: 30 });
    io.at = 'all';
    const late = ends(store, 'write', item(0));
    await expect.poll(io.waiting).toBe(1);
    const closing = store[Symbol.asyncDispose]();
    vi.advanceTimersByTime(30);
    await closing;
    await expect(FileStore.open(dir, shape)).rejects.toMatchObject({ code: 'TKV_LOCKED' });
    io.release();
    expect(await late).toEqual(['timedOut']);
    const opening = async (): Promise<string> => {
      await (await FileStore.open(dir, shape))[Symbol.asyncDispose]();
      return 'opened';
    };
    await expect.poll(() => opening().catch((error) => error.code)).toBe('opened');
  });
});

describe('file store, sizes', () => {
  const sizes: [string, PoolShape][] = [
    ['256 B', poolShape(64, 4 * KiB, [256])],
    ['4 KiB less a header, the largest that one block holds', poolShape(16, 8 * KiB, [4 * KiB - 128])],
    ['4 KiB and one word', poolShape(16, 16 * KiB, [4 * KiB + 4])],
    ['8 MiB', poolShape(3, 8 * KiB * KiB, [8 * KiB * KiB])],
    ['8 MiB and three words', poolShape(3, 8 * KiB * KiB + 12, [8 * KiB * KiB + 12])],
  ];
  for (const [name, pool] of sizes) {
    for (const mode of ['auto', 'buffered'] as const) {
      it(`holds slots of ${name} (${mode})`, async () => {
        await using store = await FileStore.open(scratchDir(), pool, { mode });
        const all: StoreItem[] = [];
        for (let page = 0; page < pool.pages; page++) {
          for (let index = 0; index < pool.slotsPerPage[0]; index++) {
            all.push(patternItem(pool, page * pool.slotsPerPageMax + index, 0, 1));
          }
        }
        expect(new Set(await ends(store, 'write', ...all))).toEqual(new Set(['loaded']));
        expect(new Set(await ends(store, 'read', ...all))).toEqual(new Set(['loaded']));
        store.checkIntegrity();
      });
    }
  }
});
