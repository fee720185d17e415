import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import { StoreView } from '../../../../src/backends/file/inspect.ts';
import type { FileStoreOptions } from '../../../../src/backends/file/opening.ts';
import { digestBytes, digestWords } from '../../../../src/runtime/digest.ts';
import { TierKVError } from '../../../../src/runtime/errors.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../../src/runtime/tier/tier.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../../src/testing/index.ts';
import { sized } from '../../../sized.ts';
import { crashed, scratchDir } from '../scratch.ts';

const KiB = 1024;
const BLOCK = 4096;
const shape = poolShape(40, 16 * KiB, [16 * KiB, 1000]);
const warm: FileStoreOptions = { restart: 'warm' };
const extremes = [0, 1, 2, 3, 63, 64, 255, 4096, 2 ** 16, 2 ** 28, 2 ** 31, 2 ** 32 - 1];

/** Files of a store that wrote 30 records over two checkpoints and was killed, or was closed. */
async function written(isClosed: boolean): Promise<string> {
  const dir = scratchDir();
  const store = await FileStore.open(dir, shape, warm);
  for (const from of [0, 15]) {
    const pages = Array.from({ length: 15 }, (_, i) => from + i);
    await store.write(pages.map((page) => patternItem(shape, page * shape.slotsPerPageMax, page % 2, 1)));
    if (from === 0) await store.checkpoint();
  }
  const killed = crashed(dir);
  await store[Symbol.asyncDispose]();
  return isClosed ? dir : killed;
}

/** Changes words of a random block of the index, and gives the block the digest that it must have. */
function forgeIndex(path: string, random: SeededRandom): void {
  const bytes = readFileSync(path);
  const used = Array.from({ length: bytes.byteLength / BLOCK }, (_, block) => block).filter((block) =>
    bytes.subarray(block * BLOCK, (block + 1) * BLOCK).some((byte) => byte !== 0),
  );
  const at = used[random.below(used.length)] * BLOCK;
  const words = new Uint32Array(bytes.buffer.slice(bytes.byteOffset + at, bytes.byteOffset + at + BLOCK));
  for (let changes = 1 + random.below(3); changes > 0; changes--) {
    const word = random.chance(0.7) ? 2 + random.below(30) : random.below(words.length);
    words[word] = extremes[random.below(extremes.length)];
  }
  words.fill(0, 8, 10);
  const { lo, hi } = digestWords(words);
  words.set([lo, hi], 8);
  bytes.set(new Uint8Array(words.buffer), at);
  writeFileSync(path, bytes);
}

/** Changes a value of the superblock's text, and gives it the digest that it must have. */
function forgeSuperblock(path: string, random: SeededRandom): void {
  const bytes = readFileSync(path);
  const length = bytes.readUInt32LE(12);
  const facts = JSON.parse(bytes.toString('utf8', 24, 24 + length));
  const values = [null, -1, 0.5, 1e300, '', 'x', [], {}, true, [4], [2 ** 31], ...extremes];
  const target = random.chance(0.3) ? facts.identity : facts;
  const names = Object.keys(target);
  target[names[random.below(names.length)]] = values[random.below(values.length)];
  const text = Buffer.from(JSON.stringify(facts));
  bytes.fill(0, 24, BLOCK);
  text.copy(bytes, 24);
  bytes.writeUInt32LE(text.byteLength, 12);
  const { lo, hi } = digestBytes(new Uint8Array(bytes.subarray(24, BLOCK)));
  bytes.writeUInt32LE(lo, 16);
  bytes.writeUInt32LE(hi, 20);
  writeFileSync(path, bytes);
}

const seed = testSeed(404);
it(`with any forged index and superblock, every read is right or refused (seed ${seed})`, async () => {
  const random = new SeededRandom(seed);
  const stores = [await written(false), await written(true)];
  let served = 0;
  let refusals = 0;
  for (let round = 0; round < sized(30, 60); round++) {
    const dir = crashed(stores[round % 2]);
    if (round % 3 === 0) forgeSuperblock(join(dir, 'tierkv.blocks'), random);
    else forgeIndex(join(dir, 'tierkv.index'), random);
    try {
      {
        await using view = await StoreView.open(dir);
        await view.check();
      }
      await using store = await FileStore.open(dir, shape, warm);
      store.checkIntegrity();
      for (const { slot, sizeClass } of store.records()) {
        const item = emptyItem(patternItem(shape, slot, sizeClass, 1));
        const [result] = await store.read([item]);
        if (result.outcome !== Outcome.LOADED) continue;
        expect(mismatchedWords(item), `round ${round}, slot ${slot}`).toBe(0);
        served++;
      }
    } catch (error) {
      expect(error, `round ${round}`).toBeInstanceOf(TierKVError);
      refusals++;
    }
  }
  expect(served).toBeGreaterThan(500);
  expect(refusals).toBeGreaterThan(5);
});
