/**
 * Where the records of a pool lie in its file. Pages keep the pool's order and each is as long as its longest
 * cut, so that a slot's record has one place whatever other pages hold:
 *
 *      0            4096      8192
 *      +------------+---------+---------------------------+---------------------------+---
 *      | superblock | scratch | page 0: record 0, 1, 2 .. | page 1                    |
 *      +------------+---------+---------------------------+---------------------------+---
 *                             |<------- pageStride ------>|
 *
 * The scratch block is written and read back when a store is opened, to see whether direct I/O works.
 */

import { createHash } from 'node:crypto';
import type { Digest } from '../../../runtime/digest.ts';
import { configError } from '../../../runtime/errors.ts';
import type { PoolShape } from '../../../runtime/pool/shape.ts';
import { BLOCK_BYTES } from '../io/dataFile.ts';
import { RECORD_VERSION, type RecordShape, recordShape } from './record.ts';

export const SCRATCH_START_BYTES: number = BLOCK_BYTES;
export const DATA_START_BYTES: number = 2 * BLOCK_BYTES;

export interface FileLayout {
  readonly shape: PoolShape;
  /** The record of each size class. */
  readonly records: readonly RecordShape[];
  readonly pageStrideBytes: number;
  /** Size of the file when every page is in it. */
  readonly fileBytes: number;
}

/** @throws TKV_CONFIG when a slot is not whole 32-bit words, or the file would pass 2^53 bytes. */
export function fileLayout(shape: PoolShape): FileLayout {
  const records = shape.slotBytes.map((bytes, sizeClass) => {
    if (bytes % 4 !== 0) {
      const remedy = 'Digests need whole 32-bit words: pad the slot.';
      throw configError(`slotBytes[${sizeClass}]`, `is ${bytes}, not a multiple of 4`, remedy);
    }
    return recordShape(bytes);
  });
  const cuts = records.map((record, sizeClass) => record.recordBytes * shape.slotsPerPage[sizeClass]);
  const pageStrideBytes = Math.max(...cuts);
  const fileBytes = DATA_START_BYTES + shape.pages * pageStrideBytes;
  if (!Number.isSafeInteger(fileBytes)) {
    const problem = `is ${shape.pages}, a file of ${fileBytes} bytes`;
    throw configError('pages', problem, 'Lower the number of blocks.');
  }
  return { shape, records, pageStrideBytes, fileBytes };
}

/** Length of the longest record. */
export function recordBytesMax({ records }: FileLayout): number {
  return Math.max(...records.map(({ recordBytes }) => recordBytes));
}

export function pageOf(layout: FileLayout, slot: number): number {
  return Math.floor(slot / layout.shape.slotsPerPageMax);
}

/** The page that the byte of the file lies in, or the pages end before. */
export function pageAt(layout: FileLayout, at: number): number {
  return Math.floor((at - DATA_START_BYTES) / layout.pageStrideBytes);
}

export function recordOffset(layout: FileLayout, slot: number, sizeClass: number): number {
  const { slotsPerPageMax } = layout.shape;
  const page = Math.floor(slot / slotsPerPageMax);
  const index = slot - page * slotsPerPageMax;
  return DATA_START_BYTES + page * layout.pageStrideBytes + index * layout.records[sizeClass].recordBytes;
}

/** Fingerprint of how bytes are laid out and of what they mean: 64 bits of a SHA-256. */
export function layoutFingerprint(pageBytes: number, slotBytes: readonly number[], meaning: string): Digest {
  const facts = JSON.stringify([RECORD_VERSION, pageBytes, slotBytes, meaning]);
  const hash = createHash('sha256').update(facts).digest();
  return { lo: hash.readUInt32LE(0), hi: hash.readUInt32LE(4) };
}
