/** Where large tables lie. The manager takes whatever memory it is given; the default is the engine's own. */

import { invariant } from '../errors.ts';

/** Zeroed memory of at least so many bytes. */
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
