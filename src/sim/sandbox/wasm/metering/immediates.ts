/**
 * What stands behind an opcode in the code. It is read no other way than engines read it: where a newer
 * format would have more bytes there, it is refused, or what we take for a number could be an instruction to
 * them.
 */

import { type ByteReader, type FunctionType, refuse, valueTypes } from '../binary/index.ts';
import { VOID } from './additions.ts';
import type { Immediate } from './instructions.ts';

/** Of 8 bytes, as the power of 2. */
const MAX_ALIGNMENT = 3;

/** @param at place of the instruction in the module */
export function skipImmediate(reader: ByteReader, immediate: Immediate, globals: number, at: number): void {
  switch (immediate) {
    case 'label':
    case 'local':
      reader.unsigned();
      break;
    case 'labels':
      reader.list(() => reader.unsigned());
      reader.unsigned();
      break;
    case 'global':
      // globals behind those of the module count its budget
      if (reader.unsigned() >= globals) refuse('has no such global', at);
      break;
    case 'types':
      if (reader.unsigned() !== 1 || !(reader.byte() in valueTypes)) refuse('selects no number', at);
      break;
    case 'memory':
      if (reader.unsigned() > MAX_ALIGNMENT) refuse('reads or writes another memory', at);
      reader.skipNumber();
      break;
    case 'byte':
      readZero(reader, at);
      break;
    case 'number':
      reader.skipNumber();
      break;
    case 'f32':
      reader.take(4);
      break;
    case 'f64':
      reader.take(8);
  }
}

/** The number of the only memory or table. */
export function readZero(reader: ByteReader, at: number): void {
  if (reader.byte() !== 0) refuse('uses another memory or table than its first', at);
}

/** What a block takes and leaves: nothing, one value, or as a type of the module says. */
export function readBlockType(reader: ByteReader, types: readonly FunctionType[], at: number): FunctionType {
  const type = reader.signed33();
  if (type >= 0) return types[type] ?? refuse('has a block without a type', at);
  const byte = type + 0x80;
  if (byte === VOID) return { params: [], results: [] };
  return byte in valueTypes ? { params: [], results: [byte] } : refuse('has a block of an unknown type', at);
}
