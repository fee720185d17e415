import { expect, it } from 'vitest';
import type { DataFile } from '../../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import { IoQueue, type QueuedIo } from '../../../../src/backends/file/ioQueue.ts';
import { fileLayout, recordOffset } from '../../../../src/backends/file/record.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../../src/runtime/tier/tier.ts';
import { emptyItem, patternItem } from '../../../../src/testing/index.ts';
import { scratchDir } from '../scratch.ts';

const KiB = 1024;
const shape = poolShape(64, 16 * KiB, [16 * KiB]);
const item = (slot: number, generation = 1) => patternItem(shape, slot, 0, generation);

/** Writes wait in `held` while `holding` says so of their place. */
function heldWrites(held: (() => void)[], holding: { at: (at: number) => boolean }) {
  return (file: DataFile): DataFile => ({
    readv: (parts, at) => file.readv(parts, at),
    async writev(parts, at) {
      if (holding.at(at)) await new Promise<void>((resolve) => held.push(resolve));
      await file.writev(parts, at);
    },
    allocate: (at, bytes) => file.allocate(at, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  });
}

it('items of one call end one by one, each with its slot free again', async () => {
  const held: (() => void)[] = [];
  const slow = recordOffset(fileLayout(shape), 0, 0);
  const holding = { at: (at: number) => at === slow };
  const wrapFile = heldWrites(held, holding);
  await using store = await FileStore.open(scratchDir(), shape, { wrapFile, ioBytes: 16 * KiB });
  const heard: number[] = [];
  const again: Promise<readonly { outcome: number }[]>[] = [];
  const items = [0, 2, 4, 6].map((slot) => item(slot));
  const all = store.write(items, (index) => {
    heard.push(index);
    if (index > 0) again.push(store.write([item(items[index].slot, 2)]));
  });
  await expect.poll(() => heard.toSorted()).toEqual([1, 2, 3]);
  const ends = (await Promise.all(again)).flat().map(({ outcome }) => outcomeNames[outcome]);
  expect(ends).toEqual(['loaded', 'loaded', 'loaded']);
  expect(heard.length).toBe(3);
  held.splice(0).forEach((resume) => void resume());
  expect((await all).map(({ outcome }) => outcomeNames[outcome])).toEqual(Array(4).fill('loaded'));
  expect(heard.at(-1)).toBe(0);
  store.checkIntegrity();
});

it('a read waits for one of the I/Os in flight, not for the writes that wait', async () => {
  const held: (() => void)[] = [];
  const holding = { at: (_: number) => false };
  const options = { wrapFile: heldWrites(held, holding), ioBytes: 16 * KiB, queueDepth: 2 };
  await using store = await FileStore.open(scratchDir(), shape, options);
  await store.write([item(63)]);
  holding.at = () => true;
  let written = 0;
  const writes = store.write(
    Array.from({ length: 30 }, (_, i) => item(2 * i)),
    () => void written++,
  );
  await expect.poll(() => held.length).toBe(2);
  const read = store.read([emptyItem(item(63))]);
  held.splice(0, 1).forEach((resume) => void resume());
  expect((await read).map(({ outcome }) => outcomeNames[outcome])).toEqual(['loaded']);
  expect(written).toBe(1);
  holding.at = () => false;
  while (written < 30) {
    held.splice(0).forEach((resume) => void resume());
    await new Promise(setImmediate);
  }
  await writes;
  store.checkIntegrity();
});

it('reads and writes that wait begin in turn, each kind in its order', async () => {
  const queue = new IoQueue(1, 60_000);
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const io = (kind: 'read' | 'write', name: string): QueuedIo => ({
    kind,
    begin() {
      begun.push(name);
      return new Promise((resolve) => ends.push(resolve));
    },
    overdue() {},
    giveUp() {},
  });
  for (const name of ['w1', 'w2', 'w3', 'w4']) queue.push(io('write', name));
  for (const name of ['r1', 'r2']) queue.push(io('read', name));
  for (let end = 0; end < 6; end++) {
    ends[end]();
    await new Promise(setImmediate);
  }
  expect(begun).toEqual(['w1', 'r1', 'w2', 'r2', 'w3', 'w4']);
});

it('an I/O that finds no memory waits until another has ended, and overtakes nothing of its kind', async () => {
  const queue = new IoQueue(4, 60_000);
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  let memory = 2;
  const io = (name: string): QueuedIo => ({
    kind: 'read',
    begin() {
      if (memory === 0) return undefined;
      memory--;
      begun.push(name);
      return new Promise<void>((resolve) => ends.push(resolve)).then(() => void memory++);
    },
    overdue() {},
    giveUp() {},
  });
  for (const name of ['a', 'b', 'c', 'd']) queue.push(io(name));
  expect(begun).toEqual(['a', 'b']);
  ends[1]();
  await new Promise(setImmediate);
  expect(begun).toEqual(['a', 'b', 'c']);
});
