/**
 * The two visitors of state: one copies it into a list of plain values, the other puts such a list back. The
 * list can be cloned structurally, and nobody changes it, so any number of objects can go on from it.
 */

import { TierKVError } from '../errors.ts';
import { isPackedOf, packed, unpack } from './packedArray.ts';
import type { Stateful, StateVisitor, TypedArray } from './stateVisitor.ts';

/** Plain values in the order in which they were shown. */
export type SavedState = readonly unknown[];

/** @returns the object's state, independent of what it does later */
export function saveState(owner: Stateful): SavedState {
  const saver = new Saver();
  owner.visitState(saver);
  return saver.saved;
}

/**
 * The object goes on from what `saveState` of an object of the same configuration gave.
 * @throws TKV_MISMATCH for the state of another kind or size of object, which leaves this one unusable
 */
export function restoreState(owner: Stateful, saved: SavedState): void {
  const restorer = new Restorer(saved);
  owner.visitState(restorer);
  restorer.end();
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

function mismatch(): TierKVError {
  return new TierKVError(
    'TKV_MISMATCH',
    'The saved state is that of another configuration. Restore it into an object that was made alike.',
  );
}
