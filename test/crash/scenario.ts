/**
 * The pools that the campaign uses, small enough that every slot is written again and again, and how they are
 * opened.
 */

import type { FileStoreOptions } from '../../src/backends/file/opening.ts';
import { type PoolShape, poolShape } from '../../src/runtime/tables/slotPool.ts';

export interface Scenario {
  readonly name: string;
  readonly shape: PoolShape;
  readonly options: FileStoreOptions;
}

const KiB = 1024;

/** What is kept with each record: up to 2,400 bytes that follow from the block's key. */
export function noteFor(key: Uint32Array): Uint8Array {
  return Uint8Array.from({ length: key[0] % 2401 }, (_, i) => (key[i & 3] >>> (i & 31)) & 0xff);
}

const often = {
  restart: 'warm',
  noteOf: noteFor,
  syncMs: 5,
  syncBytes: 200 * KiB,
  checkpointBytes: 400 * KiB,
} as const;

export const scenarios: readonly Scenario[] = [
  { name: 'blocks of 16 KiB', shape: poolShape(160, 16 * KiB, [16 * KiB]), options: often },
  {
    name: 'three sizes',
    shape: poolShape(40, 16 * KiB, [16 * KiB, 4 * KiB, 1000]),
    options: { ...often, ioBytes: 16 * KiB },
  },
  {
    name: 'blocks of 256 KiB, buffered',
    shape: poolShape(24, 256 * KiB, [256 * KiB]),
    options: { ...often, mode: 'buffered', checkpointBytes: 2000 * KiB, syncBytes: 800 * KiB },
  },
  {
    name: 'small blocks, in extents',
    shape: poolShape(100, 8 * KiB, [1000]),
    options: { ...often, allocation: 'extents', extentBytes: 50_000 },
  },
  {
    name: 'blocks of 64 KiB, each in 16 I/Os',
    shape: poolShape(40, 64 * KiB, [64 * KiB]),
    options: { ...often, ioBytes: 4 * KiB },
  },
];
