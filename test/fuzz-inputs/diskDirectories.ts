/**
 * Directories of disk tiers, damaged: bytes turned, zeroed, doubled or lost, numbers that no one means at the
 * places of numbers, files that are cut, emptied, missing or grown to terabytes of nothing, and, half of the
 * time, heads that have the digests they must have all the same.
 */

import fs from 'node:fs';
import { join } from 'node:path';
import { FileStore } from '../../src/backends/file/fileStore.ts';
import { digestBytes, digestWords } from '../../src/runtime/digest.ts';
import { poolShape } from '../../src/runtime/tables/slotPool.ts';
import { patternItem } from '../../src/testing/index.ts';
import type { Random } from '../fuzz/random.ts';

/** The files of a store that is right. */
export type StoreFiles = ReadonlyMap<string, Buffer>;

const BLOCKS = 'tierkv.blocks';
const INDEX = 'tierkv.index';
const HEAD_BYTES = 4096;

/** Command lines that read a directory. */
export const storeCommands: readonly ((dir: string, out: string) => readonly string[])[] = [
  (dir) => ['disk', 'stat', dir],
  (dir) => ['disk', 'fsck', dir],
  (dir) => ['disk', 'export', dir],
  (dir, out) => ['disk', 'stat', dir, '--json', out],
];

/** @param folder where it is made, and removed again */
export async function goodStore(folder: string): Promise<StoreFiles> {
  const dir = join(folder, 'good-store');
  fs.mkdirSync(dir);
  const shape = poolShape(24, 16_384, [16_384]);
  const identity = { model: 'm@1', layout: 'kv-layout layers=2', secretKey: 'abcd', extras: '[]', epoch: 2 };
  const store = await FileStore.open(dir, shape, { restart: 'warm', identity });
  await store.write(
    Array.from({ length: 12 }, (_, slot) => ({ ...patternItem(shape, slot, 0, 7), tokens: 16 })),
  );
  await store[Symbol.asyncDispose]();
  const names = fs.readdirSync(dir);
  const files = new Map(names.map((name) => [name, fs.readFileSync(join(dir, name))]));
  fs.rmSync(dir, { recursive: true });
  return files;
}

const oddWords = [0, 1, 2, 0xffff_ffff, 0x7fff_ffff, 0x8000_0000, 2 ** 28, 4096, 0x5b1b_5b1b, 0x2222_2222];

type Damage = (bytes: Buffer, random: Random) => void;

const anywhere = (bytes: Buffer, random: Random): number =>
  // most of what is told apart stands at the beginning
  random.chance(0.5) ? random.below(Math.min(HEAD_BYTES, bytes.length)) : random.below(bytes.length);

const damages: readonly Damage[] = [
  (bytes, random) => {
    bytes[anywhere(bytes, random)] ^= 1 << random.below(8);
  },
  (bytes, random) => {
    const at = anywhere(bytes, random) & ~3;
    if (at + 4 <= bytes.length) bytes.writeUInt32LE(random.pick(oddWords), at);
  },
  (bytes, random) => {
    const at = anywhere(bytes, random) & ~511;
    const end = Math.min(bytes.length, at + random.pick([8, 512, 4096, 65_536]));
    bytes.fill(random.pick([0, 0xff, 0x1b]), at, end);
  },
  (bytes, random) => {
    const [from, to] = [random.below(bytes.length) & ~4095, random.below(bytes.length) & ~4095];
    bytes.copy(bytes, to, from, from + 4096);
  },
];

export function writeDamagedStore(dir: string, good: StoreFiles, random: Random): void {
  fs.mkdirSync(dir);
  const spared = random.chance(0.5) ? [random.pick([BLOCKS, INDEX])] : [];
  for (const [name, whole] of good) {
    const bytes = Buffer.from(whole);
    if (!spared.includes(name)) {
      for (let left = random.between(1, 4); left > 0; left--) random.pick(damages)(bytes, random);
      if (random.chance(0.3)) textOfHead(name, bytes, random);
      if (random.chance(0.5)) mendHead(name, bytes);
    }
    const path = join(dir, name);
    if (random.chance(0.04)) continue;
    fs.writeFileSync(path, bytes);
    if (random.chance(0.1))
      fs.truncateSync(path, random.pick([0, 1, 4096, random.below(bytes.length), 10 * 2 ** 40]));
  }
}

/** Puts another number or text into the facts of the superblock. */
function textOfHead(name: string, bytes: Buffer, random: Random): void {
  if (name !== BLOCKS) return;
  const text = bytes.subarray(24, HEAD_BYTES).toString('latin1');
  const numbers = [...text.matchAll(/\d+/g)];
  if (numbers.length === 0) return;
  const { index, 0: found } = random.pick(numbers);
  const by = random.pick([
    '-1',
    '0',
    '1e308',
    '1e999',
    '9007199254740993',
    'null',
    '{}',
    '"\u001b[31m"',
    '[[[[',
  ]);
  const changed = text.slice(0, index) + by + text.slice(index + found.length);
  const length = bytes.readUInt32LE(12) + by.length - found.length;
  if (length > HEAD_BYTES - 24 || length < 0) return;
  bytes.write(changed.slice(0, HEAD_BYTES - 24), 24, 'latin1');
  bytes.writeUInt32LE(length, 12);
}

/** Gives the head of the file the digest that it must have. */
function mendHead(name: string, bytes: Buffer): void {
  const head = new Uint8Array(bytes.subarray(0, HEAD_BYTES));
  if (name === BLOCKS) {
    const { lo, hi } = digestBytes(head.subarray(24));
    bytes.writeUInt32LE(lo, 16);
    bytes.writeUInt32LE(hi, 20);
  } else if (name === INDEX) {
    const words = new Uint32Array(head.buffer);
    words.fill(0, 8, 10);
    const { lo, hi } = digestWords(words);
    bytes.writeUInt32LE(lo, 32);
    bytes.writeUInt32LE(hi, 36);
  }
}
