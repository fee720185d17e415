import { expect, it, vi } from 'vitest';
import { type DataFile, IoError } from '../../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions, StuckIo } from '../../../../src/backends/file/opening.ts';
import { fileLayout, recordOffset } from '../../../../src/backends/file/record.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../../src/runtime/tier/tier.ts';
import type { StoreItem } from '../../../../src/runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../../src/testing/index.ts';
import { editFile, scratchDir, stopClock } from '../scratch.ts';

const BLOCK = 4096;
const sizes = [64 * 1024, 40_004];
const shape = poolShape(8, 64 * 1024, sizes);
const item = (page: number, sizeClass: number, generation = 1): StoreItem =>
  patternItem(shape, page * shape.slotsPerPageMax, sizeClass, generation);

type Fault = (call: 'readv' | 'writev', from: number, to: number) => Promise<void> | undefined;

/** Blocks move in I/Os of 8 KiB and more. `written` is called after each write. */
const options = (fault: Fault = () => undefined, written: () => void = () => {}): FileStoreOptions => ({
  ioBytes: 2 * BLOCK,
  deadlineMs: 200,
  wrapFile: (file: DataFile) => ({
    async readv(parts, at) {
      await fault('readv', at, at + bytesOf(parts));
      await file.readv(parts, at);
    },
    async writev(parts, at) {
      await fault('writev', at, at + bytesOf(parts));
      await file.writev(parts, at);
      written();
    },
    allocate: (at, bytes) => file.allocate(at, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  }),
});

function bytesOf(parts: readonly Uint8Array[]): number {
  return parts.reduce((sum, part) => sum + part.byteLength, 0);
}

async function ends(store: FileStore, call: 'read' | 'write', ...items: StoreItem[]): Promise<string[]> {
  return (await store[call](items)).map(({ outcome }) => outcomeNames[outcome]);
}

it('a long block is written and read with several I/Os at once, and `ended` is called once', async () => {
  let underWay = 0;
  let most = 0;
  let calls = 0;
  const fault: Fault = async () => {
    calls++;
    most = Math.max(most, ++underWay);
    await new Promise(setImmediate);
    underWay--;
  };
  await using store = await FileStore.open(scratchDir(), shape, options(fault));
  for (const sizeClass of [0, 1]) {
    calls = most = 0;
    const one = item(sizeClass, sizeClass);
    const heard: number[] = [];
    const [written] = await store.write([one], (index) => void heard.push(index));
    const target = emptyItem(one);
    const [read] = await store.read([target], (index) => void heard.push(index));
    expect([written, read].map(({ outcome }) => outcomeNames[outcome])).toEqual(['loaded', 'loaded']);
    expect(mismatchedWords(target)).toBe(0);
    expect(heard).toEqual([0, 0]);
    // 64 KiB are eight times 8 KiB, 40,004 bytes are four times 8 KiB and a rest.
    expect(calls).toBe([8 + 8, 4 + 4][sizeClass]);
    expect(most).toBeGreaterThan(2);
  }
  store.checkIntegrity();
});

it('a long block is corrupt if one bit has flipped in any of its I/Os', async () => {
  const dir = scratchDir();
  await using store = await FileStore.open(dir, shape, options());
  for (const sizeClass of [0, 1]) {
    const one = item(sizeClass, sizeClass);
    await store.write([one]);
    const { payloadOffset } = fileLayout(shape).records[sizeClass];
    const start = recordOffset(fileLayout(shape), one.slot, sizeClass) + payloadOffset;
    for (let at = 0; at < sizes[sizeClass]; at += BLOCK - 4) {
      const flip = (): void =>
        editFile(`${dir}/tierkv.blocks`, start + at, 1, (bytes) => void (bytes[0] = bytes[0] ^ 16));
      flip();
      expect(await ends(store, 'read', emptyItem(one)), `byte ${at}`).toEqual(['corrupt']);
      flip();
    }
    expect(await ends(store, 'read', emptyItem(one))).toEqual(['loaded']);
  }
});

it('a long block is refused if one of its I/Os fails, and no other block is', async () => {
  let bad = -1;
  const fault: Fault = (_, from, to) =>
    from <= bad && bad < to ? Promise.reject(new IoError('EIO', 'io')) : undefined;
  await using store = await FileStore.open(scratchDir(), shape, options(fault));
  const all = [0, 1, 2].map((page) => item(page, 0));
  expect(await ends(store, 'write', ...all)).toEqual(['loaded', 'loaded', 'loaded']);
  bad = recordOffset(fileLayout(shape), all[1].slot, 0) + 6 * BLOCK;
  const read = (): Promise<string[]> => ends(store, 'read', ...all.map((one) => emptyItem(one)));
  expect(await read()).toEqual(['loaded', 'refused', 'loaded']);
  expect(await ends(store, 'write', item(1, 0, 2))).toEqual(['refused']);
  bad = -1;
  expect(await read()).toEqual(['loaded', 'refused', 'loaded']);
  expect(await ends(store, 'read', item(1, 0, 2))).toEqual(['missing']);
  expect(await ends(store, 'write', item(1, 0, 2))).toEqual(['loaded']);
  store.checkIntegrity();
});

it('a long block goes through staging memory from the first I/O that cannot reach its own memory', async () => {
  for (const errno of ['EINVAL', 'EFAULT']) {
    for (const call of ['writev', 'readv'] as const) {
      const fault: Fault = (what, from) =>
        what === call && refusals.delete(from) ? Promise.reject(new IoError(errno, what)) : undefined;
      const refusals = new Set<number>();
      await using store = await FileStore.open(scratchDir(), shape, { ...options(fault), mode: 'buffered' });
      const one = item(0, 0);
      const start = recordOffset(fileLayout(shape), one.slot, 0);
      const boundaries = [0, 2, 4, 6, 9, 11, 13, 15].map((blocks) => start + blocks * BLOCK);
      for (const at of boundaries) refusals.add(at);
      expect(await ends(store, 'write', one)).toEqual(['loaded']);
      const target = emptyItem(one);
      expect(await ends(store, 'read', target)).toEqual(['loaded']);
      expect(mismatchedWords(target)).toBe(0);
      expect(refusals.size).toBeLessThan(boundaries.length);
      expect(store.describe().ioErrors).toBe(boundaries.length - refusals.size);
      store.checkIntegrity();
    }
  }
});

it('a long block keeps its slot, and no other, while one of its I/Os hangs', async () => {
  stopClock();
  const stuck: StuckIo[] = [];
  let hanging = -1;
  let written = 0;
  let release: () => void = () => {};
  const fault: Fault = (_, from, to) =>
    from <= hanging && hanging < to ? new Promise<void>((resolve) => (release = resolve)) : undefined;
  await using store = await FileStore.open(scratchDir(), shape, {
    ...options(fault, () => void written++),
    onStuck: (one) => stuck.push(one),
  });
  const all = [0, 1, 2].map((page) => item(page, 0));
  expect(await ends(store, 'write', ...all)).toEqual(['loaded', 'loaded', 'loaded']);
  hanging = recordOffset(fileLayout(shape), all[0].slot, 0) + 6 * BLOCK;
  const before = written;
  const late = ends(store, 'write', item(0, 0, 2));
  await expect.poll(() => written - before).toBe(7); // of eight
  vi.advanceTimersByTime(200);
  expect(store.describe().stuck).toBe(1);
  const others = all.slice(1).map((one) => emptyItem(one));
  expect(await ends(store, 'read', ...others)).toEqual(['loaded', 'loaded']);
  expect(await ends(store, 'write', item(0, 0, 3))).toEqual(['refused']);
  hanging = -1;
  release();
  expect(await late).toEqual(['timedOut']);
  expect(stuck.map(({ retired }) => retired)).toEqual([false, true]);
  expect(await ends(store, 'write', item(0, 0, 3))).toEqual(['loaded']);
  store.checkIntegrity();
});
