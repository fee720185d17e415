import { closeSync, ftruncateSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import { StoreView } from '../../../../src/backends/file/inspect.ts';
import type { FileStoreOptions } from '../../../../src/backends/file/opening.ts';
import { loadLibc } from '../../../../src/backends/host/posix.ts';
import { digestBytes, digestWords } from '../../../../src/runtime/digest.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { patternItem } from '../../../../src/testing/index.ts';
import { editFile, scratchDir } from '../scratch.ts';

const KiB = 1024;
const shape = poolShape(64, 16 * KiB, [16 * KiB]);
const warm: FileStoreOptions = { restart: 'warm' };
const native = typeof (await loadLibc()) !== 'string';

async function written(): Promise<string> {
  const dir = scratchDir();
  const store = await FileStore.open(dir, shape, warm);
  await store.write(Array.from({ length: 10 }, (_, slot) => patternItem(shape, slot, 0, 1)));
  await store[Symbol.asyncDispose]();
  return dir;
}

/** Changes the HEAD block of the index and gives it the digest that it must have. */
function forgeHead(dir: string, change: (words: Uint32Array) => void): void {
  editFile(join(dir, 'tierkv.index'), 0, 4096, (bytes) => {
    const words = new Uint32Array(bytes.buffer);
    change(words);
    words.fill(0, 8, 10);
    const { lo, hi } = digestWords(words);
    words.set([lo, hi], 8);
  });
}

/** Puts another text into the superblock, with the digest that it must have. */
function forgeSuperblock(dir: string, change: (facts: Record<string, unknown>) => unknown): void {
  editFile(join(dir, 'tierkv.blocks'), 0, 4096, (bytes) => {
    const header = new DataView(bytes.buffer);
    const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(24, 24 + header.getUint32(12, true))));
    const text = new TextEncoder().encode(JSON.stringify(change(facts)));
    bytes.fill(0, 24);
    bytes.set(text, 24);
    header.setUint32(12, text.byteLength, true);
    const digest = digestBytes(bytes.subarray(24));
    header.setUint32(16, digest.lo, true);
    header.setUint32(20, digest.hi, true);
  });
}

function makeSparse(path: string, bytes: number): void {
  const fd = openSync(path, 'r+');
  ftruncateSync(fd, bytes);
  closeSync(fd);
}

describe('the index', () => {
  it.each([
    [
      '2^28 pages',
      (words: Uint32Array) => void (words[10] = 2 ** 28),
      /says 268435456 pages, an index of \d+ bytes, and the file has \d+/,
    ],
    ['2^60 pages', (words: Uint32Array) => void (words[11] = 2 ** 28), /says \d+ pages/],
    ['no pages in a region', (words: Uint32Array) => void (words[13] = 0), /in regions of 0$/],
    ['2^31 slots in a page', (words: Uint32Array) => void (words[12] = 2 ** 31), /pages of 2147483648 slots/],
  ])('that claims %s is not followed: the records are read instead', async (_, change, says) => {
    const dir = await written();
    forgeHead(dir, change);
    {
      await using view = await StoreView.open(dir);
      expect(view.recovered.indexProblem).toMatch(says);
      expect([...view.records()].length).toBe(10);
    }
    await using store = await FileStore.open(dir, shape, warm);
    expect(store.records().length).toBe(10);
  });

  it('that is as long as it claims, but empty, is leapt over', async ({ skip }) => {
    skip(!native, 'needs native calls');
    const dir = await written();
    forgeHead(dir, (words) => void (words[10] = 2 ** 30));
    makeSparse(join(dir, 'tierkv.index'), 2 ** 40);
    await using view = await StoreView.open(dir);
    expect([...view.records()].length).toBe(10);
  });
});

describe('a blocks file of 10 TiB that is one hole', () => {
  it('is looked at in no time, with its index and without', async ({ skip }) => {
    skip(!native, 'needs native calls');
    const dir = await written();
    makeSparse(join(dir, 'tierkv.blocks'), 10 * 2 ** 40);
    expect(statSync(join(dir, 'tierkv.blocks')).size).toBe(10 * 2 ** 40);
    for (const hasIndex of [true, false]) {
      if (!hasIndex) rmSync(join(dir, 'tierkv.index'));
      await using view = await StoreView.open(dir);
      expect([...view.records()].length).toBe(10);
      expect(view.recovered.bytesRead).toBeLessThan(4 * 2 ** 20);
    }
    await using store = await FileStore.open(dir, shape, warm);
    expect(store.records().length).toBe(10);
  });
});

describe('a superblock', () => {
  it.each([
    ['no identity', (facts: object) => ({ ...facts, identity: undefined })],
    [
      'an identity without a model',
      (facts: object) => ({ ...facts, identity: { layout: '', secretKey: '', extras: '', epoch: 0 } }),
    ],
    ['no slots', (facts: object) => ({ ...facts, slotBytes: [] })],
    ['slots of no bytes', (facts: object) => ({ ...facts, slotBytes: [0] })],
    ['a slot larger than a page', (facts: object) => ({ ...facts, slotBytes: [64 * KiB] })],
    ['sizes that are no numbers', (facts: object) => ({ ...facts, pageBytes: '1e9', slotBytes: 'all' })],
    ['pages of 10^300 bytes', (facts: object) => ({ ...facts, pageBytes: 1e300 })],
    ['no facts at all', () => null],
    ['a list', () => []],
  ])('with %s is damaged, whatever its digest, and nothing is touched', async (_, change) => {
    const dir = await written();
    forgeSuperblock(dir, change);
    const path = join(dir, 'tierkv.blocks');
    const before = readFileSync(path);
    const refusal = { code: 'TKV_MISMATCH', message: expect.stringContaining('has a damaged superblock') };
    await expect(StoreView.open(dir)).rejects.toMatchObject(refusal);
    for (const restart of ['warm', 'empty'] as const) {
      await expect(FileStore.open(dir, shape, { restart })).rejects.toMatchObject(refusal);
    }
    expect(readFileSync(path).equals(before)).toBe(true);
  });

  it('whose records are longer than its file is refused, and one of pages beyond the file is scanned as far as it goes', async () => {
    const dir = await written();
    rmSync(join(dir, 'tierkv.index'));
    forgeSuperblock(dir, (facts) => ({ ...facts, pageBytes: 2 ** 32, slotBytes: [2 ** 32 - 4096] }));
    await expect(StoreView.open(dir)).rejects.toMatchObject({
      code: 'TKV_MISMATCH',
      message: expect.stringContaining('cut off'),
    });
    forgeSuperblock(dir, (facts) => ({ ...facts, pageBytes: 2 ** 40, slotBytes: [4] }));
    await using view = await StoreView.open(dir);
    expect([...view.records()]).toEqual([]);
  });

  it('of an empty file does not count: a store that was killed before its first write begins anew', async () => {
    const dir = scratchDir();
    writeFileSync(join(dir, 'tierkv.blocks'), '');
    await (await FileStore.open(dir, shape, warm))[Symbol.asyncDispose]();
  });
});
