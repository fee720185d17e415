/**
 * A typed array without the equal values at its end: tables are larger than what is used of them. The end is
 * looked for in words of 32 bits, whatever the elements are, so that one loop over one kind of array does it.
 */

import { invariant } from '../errors.ts';
import type { TypedArray } from './stateVisitor.ts';

export interface Packed<T extends TypedArray = TypedArray> {
  readonly head: T;
  /** Every element behind the head. */
  readonly tail: number;
  /** Of the whole. */
  readonly length: number;
}

const WORD_BYTES = 4;

const kinds = [
  Float64Array,
  Int32Array,
  Uint32Array,
  Int16Array,
  Uint16Array,
  Int8Array,
  Uint8Array,
] as const;

/** What makes arrays of this kind. */
export function kindOf(array: TypedArray): new (length: number) => TypedArray {
  const kind = kinds.find((each) => array instanceof each);
  invariant(kind !== undefined, 'state is in arrays of numbers');
  return kind;
}

export function packed<T extends TypedArray>(array: T): Packed<T> {
  const { length } = array;
  const tail = length === 0 ? 0 : array[length - 1];
  return { head: array.slice(0, headLength(array)) as T, tail, length };
}

/** @returns the array that was packed: `into` itself where that has its length */
export function unpack<T extends TypedArray>({ head, tail, length }: Packed<T>, into: T): T {
  const array = length === into.length ? into : (new (kindOf(into))(length) as T);
  array.set(head);
  array.fill(tail, head.length);
  return array;
}

export function isPackedOf<T extends TypedArray>(value: unknown, array: T): value is Packed<T> {
  const { head } = (value ?? {}) as Partial<Packed>;
  return head !== undefined && head instanceof kindOf(array);
}

/** Elements before the equal ones at the end; some of those may be counted in. */
function headLength(array: TypedArray): number {
  const { buffer, byteOffset, byteLength, BYTES_PER_ELEMENT: size, length } = array;
  if (byteOffset % WORD_BYTES !== 0) return length;
  const words = new Int32Array(buffer, byteOffset, Math.floor(byteLength / WORD_BYTES));
  const period = Math.max(1, size / WORD_BYTES);
  let at = words.length - 1 - period;
  if (at < 0 || (size < WORD_BYTES && !endsAlike(array, (words.length - 1) * (WORD_BYTES / size))))
    return length;
  while (at >= 0 && words[at] === words[at + period]) at--;
  return Math.ceil(((at + 1) * WORD_BYTES) / size);
}

/** Whether the elements from `from` on are all alike: those of the last whole word, and what is behind it. */
function endsAlike(array: TypedArray, from: number): boolean {
  for (let i = from; i < array.length; i++) if (array[i] !== array[array.length - 1]) return false;
  return true;
}
