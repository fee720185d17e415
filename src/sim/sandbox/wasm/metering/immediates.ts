/** What stands behind an opcode in the code: read where it matters, gone past where it does not. */

import { type ByteReader, type FunctionType, refuse, valueTypes } from '../binary/index.ts';
import { VOID } from './additions.ts';
import type { Immediate } from './instructions.ts';

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
      reader.list(() => (reader.byte() in valueTypes ? 0 : refuse('selects no number', at)));
      break;
    case 'memory':
      reader.unsigned();
      reader.skipNumber();
      break;
    case 'byte':
      reader.byte();
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

/** What a block takes and leaves: nothing, one value, or as a type of the module says. */
export function readBlockType(reader: ByteReader, types: readonly FunctionType[], at: number): FunctionType {
  const type = reader.signed33();
  if (type >= 0) return types[type] ?? refuse('has a block without a type', at);
  const byte = type + 0x80;
  if (byte === VOID) return { params: [], results: [] };
  return byte in valueTypes ? { params: [], results: [byte] } : refuse('has a block of an unknown type', at);
}
