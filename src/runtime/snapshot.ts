/**
 * Saved state: what a manager or scheduler is between two calls, as plain values, and how it is brought back. A typed
 * array is saved without the equal values at its end, since tables are larger than what is used of them. The end is
 * found in words of 32 bits, whatever the elements are, so that one loop over one kind of array does it.
 */

import { invariant, TierKVError } from './errors.ts';
import { described, requireArray } from './options.ts';

interface Packed<T extends TypedArray = TypedArray> {
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

function isPackedOf<T extends TypedArray>(value: unknown, array: T): value is Packed<T> {
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

// The two visitors: one copies state into a list of plain values, the other puts such a list back. The list can be
// cloned structurally and is never changed, so any number of objects can go on from it.

/** Plain values in the order in which they were shown. */
export type SavedState = readonly unknown[];

/**
 * @returns the object's state, independent of what it does later
 * @throws TKV_INPUT for an object whose state cannot be saved
 */
export function saveState(owner: Stateful): SavedState {
  requireStateful(owner);
  const saver = new Saver();
  owner.visitState(saver);
  return saver.saved;
}

/**
 * Puts back the state that `saveState` took from an object of the same configuration. It may have been cloned structurally;
 * JSON does not keep it.
 * @throws TKV_INPUT for what is neither such an object nor a list; TKV_MISMATCH for the state of another kind or size of
 * object, or one that is damaged, which leaves this object unusable
 */
export function restoreState(owner: Stateful, saved: SavedState): void {
  requireStateful(owner);
  requireArray(saved, 'saved', 'Pass what saveState returned.');
  const restorer = new Restorer(saved);
  try {
    owner.visitState(restorer);
  } catch (error) {
    // what stands in the place of a list or a table fails wherever it is first used
    throw error instanceof TierKVError ? error : mismatch(error);
  }
  restorer.end();
}

function requireStateful(owner: Stateful): void {
  if (typeof (owner as Partial<Stateful> | null | undefined)?.visitState === 'function') return;
  const problem = `owner must be a manager or a scheduler, and it is ${described(owner)}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Pass what has visitState.`, { field: 'owner' });
}

function isShown(value: unknown): value is number | boolean | TypedArray {
  return typeof value === 'number' || typeof value === 'boolean' || ArrayBuffer.isView(value);
}

class Saver implements StateVisitor {
  readonly restores: boolean = false;
  readonly saved: unknown[] = [];

  fields(owner: object): void {
    for (const value of Object.values(owner)) {
      if (isShown(value)) this.saved.push(typeof value === 'object' ? packed(value) : value);
    }
  }

  constant(value: number): void {
    this.saved.push(value);
  }

  array(array: TypedArray): void {
    this.saved.push(packed(array));
  }

  growing<T extends TypedArray>(array: T): T {
    this.saved.push(packed(array));
    return array;
  }

  number(value: number): number {
    this.saved.push(value);
    return value;
  }

  flag(value: boolean): boolean {
    this.saved.push(value);
    return value;
  }

  list(list: number[]): void {
    this.saved.push([...list]);
  }

  value<T>(save: () => T): void {
    this.saved.push(save());
  }
}

class Restorer implements StateVisitor {
  readonly restores: boolean = true;
  readonly #saved: SavedState;
  #next = 0;

  constructor(saved: SavedState) {
    this.#saved = saved;
  }

  fields(owner: object): void {
    const fields = owner as Record<string, unknown>;
    for (const [name, value] of Object.entries(owner)) {
      if (!isShown(value)) continue;
      if (typeof value !== 'object') fields[name] = this.#take(typeof value);
      else fields[name] = this.#fill(value);
    }
  }

  constant(value: number): void {
    if (this.#take('number') !== value) throw mismatch();
  }

  array(array: TypedArray): void {
    if (this.#fill(array) !== array) throw mismatch();
  }

  growing<T extends TypedArray>(array: T): T {
    return this.#fill(array);
  }

  number(): number {
    return this.#take('number') as number;
  }

  flag(): boolean {
    return this.#take('boolean') as boolean;
  }

  list(list: number[]): void {
    const saved = this.#take('object') as readonly number[];
    list.length = 0;
    for (const value of saved) list.push(value);
  }

  value<T>(_save: () => T, restore: (saved: T) => void): void {
    restore(this.#take() as T);
  }

  end(): void {
    if (this.#next !== this.#saved.length) throw mismatch();
  }

  /** @returns the array itself where the length is the same, else another one */
  #fill<T extends TypedArray>(array: T): T {
    const saved = this.#take('object');
    if (!isPackedOf(saved, array)) throw mismatch();
    return unpack(saved, array);
  }

  #take(type?: string): unknown {
    const value = this.#saved[this.#next++];
    if (type !== undefined && typeof value !== type) throw mismatch();
    return value;
  }
}

function mismatch(cause?: unknown): TierKVError {
  const problem =
    cause === undefined ? 'The saved state has another configuration' : 'The saved state is damaged';
  return new TierKVError('TKV_MISMATCH', `${problem}. Restore it into an object that was made alike.`, {
    field: 'saved',
    ...(cause === undefined ? {} : { cause }),
  });
}

// The protocol of saved state: an object shows everything in it that changes to a visitor, in one order. A saving
// visitor copies it; a restoring visitor puts back what was copied from an object made alike. One method does both,
// so they cannot name different fields.
//
//     object --visitState(saves)--> plain data --visitState(restores)--> another object, made alike
//
// Scratch space that is empty between two calls is not shown.

export type TypedArray =
  | Float64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array;

export interface StateVisitor {
  /** Whether saved state is put back. */
  readonly restores: boolean;
  /**
   * The object's own public fields that are numbers, flags or typed arrays. An array that has grown replaces
   * the one that is there.
   */
  fields(owner: object): void;
  /** A number of the configuration. State that was saved with another one is refused. */
  constant(value: number): void;
  /** An array whose length never changes. */
  array(array: TypedArray): void;
  /** An array that is replaced when it grows. @returns the one to go on with */
  growing<T extends TypedArray>(array: T): T;
  /** @returns the number to go on with */
  number(value: number): number;
  /** @returns the flag to go on with */
  flag(value: boolean): boolean;
  /** A list of numbers, filled in place. */
  list(list: number[]): void;
  /**
   * Anything else, as plain data. What is saved and what is restored may be shared between snapshots, so
   * neither side changes it afterwards.
   */
  value<T>(save: () => T, restore: (saved: T) => void): void;
}

export interface Stateful {
  visitState(visitor: StateVisitor): void;
}
