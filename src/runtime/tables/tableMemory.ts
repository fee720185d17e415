/**
 * The memory of the large tables, and the convention that all tables of this room share. They are structures of
 * arrays: one typed array a field, one index a row, so that a call costs a few reads and makes no garbage.
 *
 *     -1   in a field that names a row (replica, content, job, waiter, page, next of a list): no row
 *     -2   UNKNOWN_PARENT, the one further negative name: there is a row, but it is not known
 *      0   in a count, flag or state: nothing, no, FREE. So a zeroed row is a free row, and new rows need no writing
 *      0   in an id that users see (JobId, SequenceId): none; ids count from 1
 *
 * A row number is valid until the row is given back; a reference that lives longer carries a generation beside it.
 * The manager takes memory from its caller; by default the engine allocates it.
 */

import { invariant } from '../errors.ts';

/** Zeroed memory of at least `bytes` bytes. */
export type TableMemory = (bytes: number) => ArrayBuffer;

export const ordinaryMemory: TableMemory = (bytes) => new ArrayBuffer(bytes);

export function uint32Table(memory: TableMemory, length: number): Uint32Array {
  return new Uint32Array(buffer(memory, length * 4), 0, length);
}

export function int32Table(memory: TableMemory, length: number): Int32Array {
  return new Int32Array(buffer(memory, length * 4), 0, length);
}

function buffer(memory: TableMemory, bytes: number): ArrayBuffer {
  const given = memory(bytes);
  invariant(given.byteLength >= bytes, 'tableMemory gives as much memory as it is asked for');
  return given;
}
