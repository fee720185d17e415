/**
 * Whether the file system really does direct I/O the way the store will use it, with the memory of real
 * records. In an empty file that is one round trip of the largest record, header and payload in one vectored
 * call, where a record lies. In a file with records it is a round trip through the scratch block, and a
 * read of the largest record. An answer that differs from what was written counts as a refusal, as does any
 * error.
 */

import * as fs from 'node:fs';
import { fillPattern } from '../../../runtime/pattern.ts';
import { BLOCK_BYTES, errnoOf } from './dataFile.ts';
import type { StagingPool } from './stagingPool.ts';

/** Where the probe may read and write. */
export interface ProbeOffsets {
  /** A block that may be overwritten at any time. */
  readonly scratchAt: number;
  /** The first record of the file. */
  readonly recordAt: number;
  /** Length of the longest record. */
  readonly recordBytes: number;
  /** Whether the file has records, which the probe must not overwrite. */
  readonly holdsRecords: boolean;
}

/** A descriptor for direct I/O, or why there is none. */
export function probeDirectIo(path: string, offsets: ProbeOffsets, staging: StagingPool): number | string {
  const { O_DIRECT, O_RDWR, O_NOFOLLOW } = fs.constants;
  if (O_DIRECT === undefined) return 'this system has no O_DIRECT';
  let fd: number;
  try {
    fd = fs.openSync(path, O_RDWR | O_DIRECT | O_NOFOLLOW);
  } catch (error) {
    return `open with O_DIRECT failed with ${errnoOf(error)}`;
  }
  const { scratchAt, recordAt, recordBytes, holdsRecords } = offsets;
  const why = holdsRecords
    ? tryIo(fd, scratchAt, BLOCK_BYTES, true, staging) || tryIo(fd, recordAt, recordBytes, false, staging)
    : tryIo(fd, recordAt, recordBytes, true, staging);
  if (why === '') return fd;
  fs.closeSync(fd);
  return why;
}

/** Reads at `at`, after writing there where `writes`, into aligned memory. @returns what went wrong */
function tryIo(fd: number, at: number, bytes: number, writes: boolean, staging: StagingPool): string {
  const memory = staging.take(bytes);
  if (memory === undefined) return 'no aligned memory for the probe';
  const words = new Uint32Array(memory.buffer, memory.byteOffset, bytes / 4);
  const parts = [memory.subarray(0, BLOCK_BYTES), memory.subarray(BLOCK_BYTES)];
  if (bytes === BLOCK_BYTES) parts.pop();
  try {
    if (!writes) {
      fs.readvSync(fd, parts, at);
      return '';
    }
    fillPattern(words, bytes, 0);
    const written = words.slice();
    if (fs.writevSync(fd, parts, at) !== bytes) return 'a direct write was cut short';
    words.fill(0);
    if (fs.readvSync(fd, parts, at) !== bytes) return 'a direct read was cut short';
    return Buffer.compare(Buffer.from(written.buffer), memory) === 0 ? '' : 'direct I/O returned other bytes';
  } catch (error) {
    return `direct I/O of ${bytes} bytes failed with ${errnoOf(error)}`;
  } finally {
    staging.give(memory);
  }
}
