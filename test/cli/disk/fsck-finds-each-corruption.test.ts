/** Every kind of damage that can be planted in a closed store is found, and a healthy one has no fault. */

import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../src/backends/file/opening.ts';
import { checkStore } from '../../../src/cli/disk/run.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { patternItem, SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { editFile } from '../../backends/file/scratch.ts';

const KiB = 1024;
const shape = poolShape(64, 16 * KiB, [16 * KiB, 1000]);
const warm: FileStoreOptions = { restart: 'warm' };
const work = mkdtempSync(join(tmpdir(), 'tierkv-fsck-'));
const dir = join(work, 'store');
const kept = join(work, 'kept');
const files = ['tierkv.blocks', 'tierkv.index'] as const;
const blocks = join(dir, 'tierkv.blocks');
const index = join(dir, 'tierkv.index');
/** Pages 0 to 19 hold a large record, 20 to 29 small ones, the rest nothing. */
const large = 20;
const recordAt = (page: number): number => 8192 + page * 64 * KiB;

afterAll(() => rmSync(work, { recursive: true }));

async function write(generation: number): Promise<void> {
  const store = await FileStore.open(dir, shape, warm);
  const items = [];
  for (let page = 0; page < 30; page++) {
    const slot = page * shape.slotsPerPageMax;
    if (page < large) items.push(patternItem(shape, slot, 0, generation));
    else for (let i = 0; i < 5; i++) items.push(patternItem(shape, slot + i, 1, generation));
  }
  await store.write(items);
  await store[Symbol.asyncDispose]();
}

beforeAll(async () => {
  mkdirSync(dir);
  mkdirSync(kept);
  await write(1);
  await write(2);
  for (const name of files) copyFileSync(join(dir, name), join(kept, name));
});

async function restored<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } finally {
    for (const name of files) copyFileSync(join(kept, name), join(dir, name));
  }
}

async function faultsAfter(damage: () => void): Promise<string[]> {
  return restored(async () => {
    damage();
    const { faults } = await checkStore(dir);
    return faults.map(({ where, problem }) => `${where}: ${problem}`);
  });
}

const flip = (path: string, at: number): void =>
  editFile(path, at, 1, (bytes) => void (bytes[0] = bytes[0] ^ 0x10));

it('a healthy store has no faults and no leftovers, and checking it changes nothing', async () => {
  const before = files.map((name) => readFileSync(join(dir, name)));
  const report = await checkStore(dir);
  expect(report).toMatchObject({ faults: [], leftovers: [], recordsChecked: large + 50, closed: true });
  for (const [i, name] of files.entries()) expect(readFileSync(join(dir, name)).equals(before[i])).toBe(true);
});

describe('one damage, and the fault that names it', () => {
  it.each([
    [
      'a payload',
      () => flip(blocks, recordAt(3) + 4096 + 777),
      /^slot 48: the bytes do not have their digest$/,
    ],
    [
      'a small payload',
      () => flip(blocks, recordAt(21) + 300),
      /^slot 336: the bytes do not have their digest$/,
    ],
    ['a header', () => flip(blocks, recordAt(5) + 17), /^slot 80: the header's digest is wrong$/],
    ['the magic', () => flip(blocks, recordAt(5)), /^slot 80: the slot holds no record \(magic\)$/],
    [
      'the gap behind a header',
      () => flip(blocks, recordAt(7) + 3000),
      /^slot 112: its padding is not zero$/,
    ],
    [
      'the gap behind a payload',
      () => flip(blocks, recordAt(22) + 2000),
      /^slot 352: its padding is not zero$/,
    ],
    [
      'an older record in its place',
      () => {
        editFile(blocks, recordAt(1), 128, (bytes) => {
          const words = new Uint32Array(bytes.buffer);
          words[20] = 1;
        });
      },
      /^slot 16: the header's digest is wrong$/,
    ],
    [
      'a record put in the place of another',
      () => {
        let record = new Uint8Array();
        editFile(blocks, recordAt(8), 20 * KiB, (bytes) => void (record = bytes.slice()));
        editFile(blocks, recordAt(9), 20 * KiB, (bytes) => bytes.set(record));
      },
      /^slot 144: the record is of slot 128$/,
    ],
    ['the end cut off', () => truncateSync(blocks, recordAt(29) + 100), /^slot 464: cannot be read \(EOF\)$/],
    ['the head of the index', () => flip(index, 100), /^index: its HEAD block does not have its digest$/],
  ])('%s', async (_, damage, says) => {
    expect(await faultsAfter(damage)).toContainEqual(expect.stringMatching(says));
  });

  it('the superblock, by refusing the store', async () => {
    await restored(async () => {
      flip(blocks, 60);
      await expect(checkStore(dir)).rejects.toMatchObject({
        code: 'TKV_MISMATCH',
        message: expect.stringContaining('damaged superblock'),
      });
    });
  });

  it('an index that is gone', async () => {
    expect(await faultsAfter(() => rmSync(index))).toEqual(['index: the index file is missing']);
  });

  it('a record taken back to what it was before the last write', async () => {
    await restored(async () => {
      const [first] = [readFileSync(blocks)];
      await write(3);
      editFile(blocks, recordAt(4), 20 * KiB, (bytes) =>
        bytes.set(first.subarray(recordAt(4), recordAt(4) + 20 * KiB)),
      );
      const { faults } = await checkStore(dir);
      expect(faults).toEqual([{ where: 'slot 64', problem: 'the record differs from what the index says' }]);
    });
  });
});

const seed = testSeed(3);
it(`any one bit of any record or any index block that was written (seed ${seed})`, async () => {
  const random = new SeededRandom(seed);
  const indexBytes = statSync(index).size;
  const image = readFileSync(index);
  const isWritten = (at: number): boolean => {
    const block = at - (at % 4096);
    return image.subarray(block, block + 4096).some((byte) => byte !== 0);
  };
  for (let round = 0; round < 60; round++) {
    const page = random.below(30);
    const recordBytes = page < large ? 20 * KiB : 5 * 4096;
    const inBlocks = recordAt(page) + random.below(recordBytes);
    const inIndex = random.below(indexBytes);
    const found = await faultsAfter(() => flip(blocks, inBlocks));
    expect(found, `bit at ${inBlocks} of the blocks`).toHaveLength(1);
    if (isWritten(inIndex)) {
      const faults = await faultsAfter(() => flip(index, inIndex));
      expect(faults.length, `bit at ${inIndex} of the index`).toBeGreaterThan(0);
    }
  }
});
