/**
 * Saved state: what a manager or scheduler is between two calls, as plain values, and how it is brought back. A typed
 * array is saved without the equal values at its end, since tables are larger than what is used of them. The end is
 * found in words of 32 bits, whatever the elements are, so that one loop over one kind of array does it.
 *
 * A sum over all of it comes first, so that a state in which anything was changed is refused before anything is made
 * of it. What was put back must then pass the object's own audit. A state that never leaves its process (`takeState`,
 * `putBackState`) has no sum and no audit, which would take most of the time.
 */

import { digestWords } from './digest.ts';
import { described, invariant, TierKVError } from './errors.ts';
import * as is from './kinds.ts';

interface Packed<T extends TypedArray = TypedArray> {
  readonly head: T;
  /** Every element behind the head. */
  readonly tail: number;
  /** Elements of the whole array. */
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

/** The constructor of arrays of this kind. */
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
  const { head, tail, length } = (value ?? {}) as Partial<Packed>;
  if (!(head instanceof kindOf(array)) || typeof tail !== 'number') return false;
  return Number.isSafeInteger(length) && head.length <= (length as number);
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

/** Their seal, then plain values in the order in which they were shown. */
export type SavedState = readonly unknown[];

/**
 * @returns the object's state, independent of what it does later
 * @throws TKV_INPUT for an object whose state cannot be saved
 */
export function saveState(owner: Stateful): SavedState {
  return sealed(takeState(owner));
}

/** The object's state without a seal: for `putBackState` of this process alone. */
export function takeState(owner: Stateful): SavedState {
  requireStateful(owner);
  const saver = new Saver();
  owner.visitState(saver);
  return saver.saved;
}

/** Adds the seal to what `takeState` gave. @throws TKV_INPUT where it holds what cannot be saved */
export function sealed(state: SavedState): SavedState {
  return [sealOf(state, Infinity), ...state.slice(1)];
}

/**
 * Puts back the state that `saveState` took from an object of the same configuration. It may have been cloned structurally;
 * JSON does not keep it.
 * @throws TKV_INPUT for what is neither such an object nor a list; TKV_MISMATCH for a damaged state, which leaves the
 * object as it was, and for the state of another kind or size of object, which leaves it unusable
 */
export function restoreState(owner: Stateful, saved: SavedState): void {
  requireStateful(owner);
  is.array('Pass what saveState returned.').read(saved, 'saved');
  requireSealed(saved);
  try {
    putBackState(owner, saved);
    owner.checkIntegrity?.();
  } catch (error) {
    // what stands in the place of a list or a table fails wherever it is first used
    throw error instanceof TierKVError ? error : mismatch(error);
  }
}

/** Puts back a state that this process took and nothing has changed: no seal is checked. */
export function putBackState(owner: Stateful, saved: SavedState): void {
  const restorer = new Restorer(saved);
  owner.visitState(restorer);
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

// The sum over saved values. Each step is a bijection of the sum for a given word and of the word for a given sum, so a
// change of one word always changes it; two changes are missed once in 2^64. It guards against faults, not forgers.

interface Seal {
  /** Number of the saved form; a state with another number was written by another tierkv. */
  readonly form: number;
  /** Values in the lists and objects of the state. Reading stops where there are more. */
  readonly values: number;
  readonly lo: number;
  readonly hi: number;
}

const STATE_FORM = 1;

/** @throws TKV_MISMATCH where anything behind the seal is not what was saved */
function requireSealed(saved: SavedState): void {
  const seal = (saved[0] ?? {}) as Partial<Seal>;
  if (seal.form !== STATE_FORM) {
    const problem = 'The saved state is not one that this tierkv wrote';
    throw new TierKVError('TKV_MISMATCH', `${problem}. Save it anew, and restore it unchanged.`, {
      field: 'saved',
    });
  }
  let found: Seal;
  try {
    found = sealOf(saved, Number(seal.values));
  } catch (error) {
    throw damaged(error); // circles, and more values than there were
  }
  if (found.values !== seal.values || found.lo !== seal.lo || found.hi !== seal.hi) throw damaged();
}

/** @param saved with the place of the seal, which is left out */
function sealOf(saved: SavedState, limit: number): Seal {
  const sum = new StateSum(limit);
  for (let i = 1; i < saved.length; i++) sum.value(saved[i]);
  return { form: STATE_FORM, values: sum.values, lo: sum.lo >>> 0, hi: sum.hi >>> 0 };
}

const Kind = {
  NOTHING: 1,
  NULL: 2,
  FLAG: 3,
  NUMBER: 4,
  TEXT: 5,
  BIGINT: 6,
  LIST: 7,
  OBJECT: 8,
  WORDS: 9,
  MAP: 10,
  SET: 11,
} as const;

class StateSum {
  values = 0;
  lo = 0x3c6ef372;
  hi = 0x243f6a88;
  readonly #limit: number;
  /** Names of fields so far, by number: each is read once. */
  readonly #names: Map<string, number> = new Map();
  readonly #number: Float64Array = new Float64Array(1);
  readonly #halves: Int32Array = new Int32Array(this.#number.buffer);

  constructor(limit: number) {
    this.#limit = limit;
  }

  value(value: unknown): void {
    this.#count();
    switch (typeof value) {
      case 'number':
        this.#word(Kind.NUMBER);
        this.#number[0] = value;
        this.#word(this.#halves[0]);
        this.#word(this.#halves[1]);
        return;
      case 'boolean':
        this.#word(Kind.FLAG);
        this.#word(value ? 1 : 0);
        return;
      case 'string':
        this.#word(Kind.TEXT);
        this.#text(value);
        return;
      case 'undefined':
        this.#word(Kind.NOTHING);
        return;
      case 'bigint':
        this.#word(Kind.BIGINT);
        this.#text(value.toString(16));
        return;
      case 'object':
        if (value === null) this.#word(Kind.NULL);
        else this.#object(value);
        return;
      default:
        throw new TierKVError('TKV_INPUT', `State must be plain data, and it holds ${described(value)}.`, {
          field: 'owner',
        });
    }
  }

  #object(value: object): void {
    if (ArrayBuffer.isView(value)) this.#words(value);
    else if (value instanceof ArrayBuffer) this.#words(new Uint8Array(value));
    else if (Array.isArray(value)) {
      this.#word(Kind.LIST);
      this.#word(value.length);
      for (const one of value) this.value(one);
    } else if (value instanceof Map) {
      this.#word(Kind.MAP);
      this.#word(value.size);
      for (const [key, one] of value) {
        this.value(key);
        this.value(one);
      }
    } else if (value instanceof Set) {
      this.#word(Kind.SET);
      this.#word(value.size);
      for (const one of value) this.value(one);
    } else {
      const names = Object.keys(value);
      this.#word(Kind.OBJECT);
      this.#word(names.length);
      for (const name of names) {
        this.#name(name);
        this.value((value as Record<string, unknown>)[name]);
      }
    }
  }

  #words(view: ArrayBufferView): void {
    const { byteOffset, byteLength } = view;
    const whole = byteLength - (byteLength % WORD_BYTES);
    const bytes = new Uint8Array(view.buffer, byteOffset, byteLength);
    const aligned = byteOffset % WORD_BYTES === 0 ? bytes : bytes.slice();
    const { lo, hi } = digestWords(new Uint32Array(aligned.buffer, aligned.byteOffset, whole / WORD_BYTES));
    this.#word(Kind.WORDS);
    this.#word(kinds.findIndex((kind) => view instanceof kind));
    this.#word(byteLength);
    this.#word(lo);
    this.#word(hi);
    for (let i = whole; i < byteLength; i++) this.#word(bytes[i]);
  }

  #name(name: string): void {
    const known = this.#names.get(name);
    this.#word(known ?? -1);
    if (known !== undefined) return;
    this.#names.set(name, this.#names.size);
    this.#text(name);
  }

  #text(text: string): void {
    this.#word(text.length);
    for (let i = 0; i < text.length; i++) this.#word(text.charCodeAt(i));
  }

  #count(): void {
    if (++this.values > this.#limit) throw new Error(`more than ${this.#limit} values`);
  }

  #word(word: number): void {
    const { lo, hi } = this;
    this.lo = Math.imul(((lo << 5) | (lo >>> 27)) ^ word, 0x9e3779b1);
    this.hi = Math.imul(((hi << 13) | (hi >>> 19)) + word, 0x21f0aaad) ^ (this.lo >>> 16);
  }
}

class Saver implements StateVisitor {
  readonly restores: boolean = false;
  /** The first is where the seal comes. */
  readonly saved: unknown[] = [undefined];

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
  #next = 1;

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
    cause === undefined
      ? 'The saved state has another configuration'
      : 'The saved state is damaged, or of another object';
  return new TierKVError('TKV_MISMATCH', `${problem}. Restore it into an object that was made alike.`, {
    field: 'saved',
    ...(cause === undefined ? {} : { cause }),
  });
}

function damaged(cause?: unknown): TierKVError {
  const problem = 'The saved state is damaged: it is not what was saved. Restore a sound copy.';
  return new TierKVError('TKV_MISMATCH', problem, {
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
  /** The object's own audit of what was put back. @throws where a rule is broken */
  checkIntegrity?(): void;
}
