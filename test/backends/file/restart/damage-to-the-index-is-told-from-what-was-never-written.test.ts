import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import {
  BlockKind,
  blockOffset,
  geometryOf,
  INDEX_VERSION,
} from '../../../../src/backends/file/indexBlocks.ts';
import { StoreView } from '../../../../src/backends/file/inspect.ts';
import type { FileStoreOptions } from '../../../../src/backends/file/opening.ts';
import { fileLayout } from '../../../../src/backends/file/record.ts';
import { digestWords } from '../../../../src/runtime/digest.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { patternItem } from '../../../../src/testing/index.ts';
import { crashed, editFile, scratchDir } from '../scratch.ts';

const KiB = 1024;
const shape = poolShape(400, 16 * KiB, [16 * KiB]);
const warm: FileStoreOptions = { restart: 'warm' };
const geometry = geometryOf(fileLayout(shape));
const RECORDS = 182;

/** A store of 182 records, which three SLOT blocks list; or what a kill leaves of it after a checkpoint. */
async function written(end: 'closed' | 'killed'): Promise<string> {
  const dir = scratchDir();
  const store = await FileStore.open(dir, shape, warm);
  await store.write(Array.from({ length: RECORDS }, (_, slot) => patternItem(shape, slot, 0, 1)));
  if (end === 'killed') await store.checkpoint();
  const killed = end === 'killed' ? crashed(dir) : dir;
  await store[Symbol.asyncDispose]();
  return killed;
}

async function epochOf(dir: string): Promise<number> {
  await using view = await StoreView.open(dir);
  return view.recovered.epoch;
}

function zeroSlots(dir: string, epoch: number, block: number): void {
  const at = blockOffset(geometry, epoch, BlockKind.SLOT, block);
  editFile(join(dir, 'tierkv.index'), at, 4096, (bytes) => void bytes.fill(0));
}

describe('a zeroed block of slots', () => {
  for (const end of ['closed', 'killed'] as const) {
    it(`costs time and no record, and fsck names it (the store was ${end})`, async () => {
      for (const block of [0, 1, 2]) {
        const dir = await written(end);
        zeroSlots(dir, await epochOf(dir), block);
        await using view = await StoreView.open(dir);
        expect([...view.records()].length).toBe(RECORDS);
        const { faults } = await view.check();
        expect(faults).toEqual([
          {
            where: expect.stringMatching(`^index: SLOT block ${block} of half`),
            problem: 'was written and is blank',
          },
        ]);
        await using store = await FileStore.open(dir, shape, warm);
        expect(store.records().length).toBe(RECORDS);
        expect(store.describe()).toMatchObject({ recoveredFrom: 'checkpoint' });
        await store[Symbol.asyncDispose]();
        await using after = await StoreView.open(dir);
        expect((await after.check()).faults).toEqual([]);
      }
    });
  }

  it('is not a fault if none of its slots was ever written', async () => {
    const dir = await written('closed');
    for (const block of [3, 4, 5, 6]) zeroSlots(dir, await epochOf(dir), block);
    await using view = await StoreView.open(dir);
    expect((await view.check()).faults).toEqual([]);
    expect([...view.records()].length).toBe(RECORDS);
    expect(view.recovered.bytesRead).toBe(0);
  });
});

it('an index of version 2, which does not say how many blocks it has, still opens warm', async () => {
  const dir = await written('closed');
  const path = join(dir, 'tierkv.index');
  const bytes = readFileSync(path);
  for (let at = 0; at < bytes.byteLength; at += 4096) {
    const words = new Uint32Array(bytes.buffer.slice(bytes.byteOffset + at, bytes.byteOffset + at + 4096));
    if (words[2] !== INDEX_VERSION) continue;
    words[2] = 2;
    if (bytes.toString('latin1', at + 4, at + 8) === 'DONE') words[15] = 0;
    words.fill(0, 8, 10);
    const { lo, hi } = digestWords(words);
    words.set([lo, hi], 8);
    bytes.set(new Uint8Array(words.buffer), at);
  }
  writeFileSync(path, bytes);
  await using store = await FileStore.open(dir, shape, warm);
  expect(store.describe()).toMatchObject({
    recoveredFrom: 'checkpoint',
    recoveredClosed: true,
    recoveryReadBytes: 0,
  });
  expect(store.records().length).toBe(RECORDS);
});
