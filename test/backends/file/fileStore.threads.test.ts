import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { HostArena, stretchOf } from '../../../src/backends/arena/index.ts';
import { fileLayout, recordOffset } from '../../../src/backends/file/fileLayout.ts';
import { FileStore } from '../../../src/backends/file/index.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { Outcome } from '../../../src/runtime/transfer/outcome.ts';
import type { StoreItem } from '../../../src/runtime/transfer/tierStore.ts';
import { mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { editFile, scratchDir } from './scratch.ts';

const MiB = 1024 * 1024;
const shape = poolShape(8, 4 * MiB, [4 * MiB]);
const layout = fileLayout(shape);
const arena = await HostArena.open({ chunkBytes: [8 * 4 * MiB], field: 'test' });
const [memory] = arena.chunks;
const withoutLibc = stretchOf(memory) === undefined;
if (withoutLibc) console.warn('tests of digest threads skipped: nobody knows addresses here');

/** To read into memory that threads can look at. */
function sharedTarget(item: StoreItem, index: number): StoreItem {
  return { ...item, bytes: new Uint8Array(memory, index * 4 * MiB, 4 * MiB).fill(0) };
}

describe.skipIf(withoutLibc)('a file store whose reads are digested on other threads', () => {
  it('loads what is right, and answers corrupt for a bit that is wrong anywhere in a block', async () => {
    const dir = scratchDir();
    await using store = await FileStore.open(dir, shape, { digestThreads: 2 });
    const items = Array.from({ length: 8 }, (_, slot) => patternItem(shape, slot, 0, 1));
    await store.write(items);
    const readAll = () => store.read(items.map(sharedTarget));
    await readAll();
    await expect.poll(() => readAll().then(() => store.describe().digestThreads)).toBeGreaterThan(0);

    const targets = items.map(sharedTarget);
    const healthy = await store.read(targets);
    expect(healthy.map(({ reason }) => reason)).toEqual(Array(8).fill(''));
    for (const target of targets) expect(mismatchedWords(target)).toBe(0);

    const damaged = [0, 3, 4, 7];
    const damage = (): void => {
      for (const slot of damaged) {
        const at = recordOffset(layout, slot, 0) + 4096 + slot * 524_288 + 77;
        editFile(join(dir, 'tierkv.blocks'), at, 1, (one) => void (one[0] = one[0] ^ 0x04));
      }
    };
    damage();
    const ends = await readAll();
    expect(ends.map(({ outcome }) => outcome)).toEqual(
      items.map((_, slot) => (damaged.includes(slot) ? Outcome.CORRUPT : Outcome.LOADED)),
    );
    damage();
    expect((await readAll()).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
    expect(store.describe().digestThreadFailure).toBe('');
    store.checkIntegrity();
  });

  it('closes while digests are under way', async () => {
    const store = await FileStore.open(scratchDir(), shape, { digestThreads: 1 });
    const items = Array.from({ length: 8 }, (_, slot) => patternItem(shape, slot, 0, 1));
    await store.write(items);
    await store.read(items.map(sharedTarget));
    const reads = store.read(items.map(sharedTarget));
    await store[Symbol.asyncDispose]();
    for (const { outcome } of await reads) expect([Outcome.LOADED, Outcome.REFUSED]).toContain(outcome);
  });
});

it('a file store without native calls digests what it reads by itself, and notices the same', async () => {
  const dir = scratchDir();
  await using store = await FileStore.open(dir, shape, { digestThreads: 2, native: false });
  using plain = await HostArena.open({ chunkBytes: [8 * 4 * MiB], native: false, field: 'test' });
  const items = Array.from({ length: 8 }, (_, slot) => patternItem(shape, slot, 0, 1));
  await store.write(items);
  const targets = items.map((item, slot) => ({
    ...item,
    bytes: new Uint8Array(plain.chunks[0], slot * 4 * MiB, 4 * MiB),
  }));
  expect((await store.read(targets)).every(({ outcome }) => outcome === Outcome.LOADED)).toBe(true);
  for (const target of targets) expect(mismatchedWords(target)).toBe(0);
  const at = recordOffset(layout, 5, 0) + 4096 + 3 * MiB;
  editFile(join(dir, 'tierkv.blocks'), at, 1, (one) => void (one[0] = one[0] ^ 0x20));
  const ends = await store.read(targets);
  expect(ends.map(({ outcome }) => outcome === Outcome.CORRUPT)).toEqual(items.map((_, slot) => slot === 5));
  expect(store.describe()).toMatchObject({ digestThreads: 0, digestThreadsMax: 2, digestThreadFailure: '' });
});
