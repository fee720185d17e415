import { expect, it } from 'vitest';
import type { DataFile } from '../../../src/backends/file/dataFile.ts';
import { FileStore } from '../../../src/backends/file/index.ts';
import { ioBytes } from '../../../src/backends/file/ioLength.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { outcomeNames } from '../../../src/runtime/transfer/outcome.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { scratchDir } from './scratch.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

it('an I/O is a share of the bytes under way, between one and four shortest ones for reads and two for writes', () => {
  const lengths = [0, 2, 16, 24, 64, 1024].map((under) => ioBytes('read', under * MIB, 2 * MIB) / MIB);
  expect(lengths).toEqual([2, 2, 2, 3, 8, 8]);
  expect(ioBytes('write', 1024 * MIB, 2 * MIB)).toBe(4 * MIB);
});

it('a short load goes in several I/Os and a long one in long ones, and both bring what was written', async () => {
  const shape = poolShape(64, 16 * KIB, [16 * KIB]);
  const reads: number[] = [];
  await using store = await FileStore.open(scratchDir(), shape, {
    pieceBytes: 32 * KIB,
    wrapFile: (file) => recordedReads(file, reads),
  });
  const items = Array.from({ length: 64 }, (_, slot) => patternItem(shape, slot, 0, 1));
  await store.write(items);
  const blocksPerRead = async (count: number): Promise<number[]> => {
    reads.length = 0;
    const targets = items.slice(0, count).map((item) => emptyItem(item));
    const ends = await store.read(targets);
    expect(ends.map(({ outcome }) => outcomeNames[outcome])).toEqual(targets.map(() => 'loaded'));
    expect(targets.map((target) => mismatchedWords(target))).toEqual(targets.map(() => 0));
    return reads.map((bytes) => bytes / (20 * KIB)); // a header of 4 KiB before each
  };
  expect(await blocksPerRead(8)).toEqual([2, 2, 2, 2]);
  expect(await blocksPerRead(32)).toEqual(new Array(8).fill(4));
  expect(await blocksPerRead(64)).toEqual(new Array(8).fill(8));
});

function recordedReads(file: DataFile, reads: number[]): DataFile {
  return {
    readv(parts, positionBytes) {
      reads.push(parts.reduce((sum, part) => sum + part.byteLength, 0));
      return file.readv(parts, positionBytes);
    },
    writev: (parts, positionBytes) => file.writev(parts, positionBytes),
    allocate: (positionBytes, bytes) => file.allocate(positionBytes, bytes),
    sync: () => file.sync(),
    close: () => file.close(),
  };
}
