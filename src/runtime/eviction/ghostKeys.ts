/**
 * Keys of contents that are gone, so that a policy recognises them when they return: numbered rows in FIFO lists,
 * found by key. The table grows up to its limit and not beyond; a caller that adds to a full table must remove a key
 * first.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import { hashOf } from '../tables/prefixIndex.ts';

const FIRST_ROWS = 64;

export class GhostKeys {
  readonly limit: number;
  readonly #lists: number;
  #rows: number;
  #keys: Uint32Array;
  /** First row of each hash bucket, and the next row of the same bucket. */
  #bucket: Int32Array;
  #chain: Int32Array;
  /** Links of the lists: a row, or `-1 - list` at either end. */
  #newer: Int32Array;
  #older: Int32Array;
  #list: Uint8Array;
  readonly #newest: Int32Array;
  readonly #oldest: Int32Array;
  readonly #size: Int32Array;
  /** Rows from here on were never used; free rows before it are chained. */
  #fresh = 0;
  #free = -1;
  #count = 0;

  constructor(limit: number, lists = 1) {
    this.limit = limit;
    this.#lists = lists;
    this.#rows = Math.min(limit, FIRST_ROWS);
    this.#keys = new Uint32Array(this.#rows * 4);
    this.#bucket = new Int32Array(FIRST_ROWS * 2).fill(-1);
    this.#chain = new Int32Array(this.#rows);
    this.#newer = new Int32Array(this.#rows);
    this.#older = new Int32Array(this.#rows);
    this.#list = new Uint8Array(this.#rows);
    this.#newest = new Int32Array(lists).fill(-1);
    this.#oldest = new Int32Array(lists).fill(-1);
    this.#size = new Int32Array(lists);
  }

  /** Rows in use or free: numbers of ghosts are below this. */
  get rows(): number {
    return this.#rows;
  }

  get count(): number {
    return this.#count;
  }

  get isFull(): boolean {
    return this.#count === this.limit;
  }

  size(list: number): number {
    return this.#size[list];
  }

  listOf(ghost: number): number {
    return this.#list[ghost];
  }

  /** The ghost that was added to the list longest ago, or -1. */
  oldest(list = 0): number {
    return this.#oldest[list];
  }

  /** The ghost after this one towards the newest of its list, or -1. */
  newer(ghost: number): number {
    return this.#newer[ghost];
  }

  /** The ghost with the key at `keys[at..at + 4)`, or -1. */
  find(keys: Uint32Array, at: number): number {
    const own = this.#keys;
    for (let g = this.#bucket[this.#home(keys, at)]; g !== -1; g = this.#chain[g]) {
      const k = g * 4;
      if (
        own[k] === keys[at] &&
        own[k + 1] === keys[at + 1] &&
        own[k + 2] === keys[at + 2] &&
        own[k + 3] === keys[at + 3]
      ) {
        return g;
      }
    }
    return -1;
  }

  /** Adds a key that is not there, as the newest of its list. @returns its ghost */
  add(list: number, keys: Uint32Array, at: number): number {
    invariant(!this.isFull, 'a ghost is removed from a full table before another is added');
    let ghost = this.#free;
    if (ghost !== -1) this.#free = this.#chain[ghost];
    else {
      if (this.#fresh === this.#rows) this.#grow();
      ghost = this.#fresh++;
    }
    for (let w = 0; w < 4; w++) this.#keys[ghost * 4 + w] = keys[at + w];
    const home = this.#home(keys, at);
    this.#chain[ghost] = this.#bucket[home];
    this.#bucket[home] = ghost;
    const before = this.#newest[list];
    this.#older[ghost] = before;
    this.#newer[ghost] = -1;
    if (before === -1) this.#oldest[list] = ghost;
    else this.#newer[before] = ghost;
    this.#newest[list] = ghost;
    this.#list[ghost] = list;
    this.#size[list]++;
    this.#count++;
    return ghost;
  }

  remove(ghost: number): void {
    const home = this.#home(this.#keys, ghost * 4);
    if (this.#bucket[home] === ghost) this.#bucket[home] = this.#chain[ghost];
    else {
      let before = this.#bucket[home];
      while (this.#chain[before] !== ghost) before = this.#chain[before];
      this.#chain[before] = this.#chain[ghost];
    }
    const list = this.#list[ghost];
    const older = this.#older[ghost];
    const newer = this.#newer[ghost];
    if (older === -1) this.#oldest[list] = newer;
    else this.#newer[older] = newer;
    if (newer === -1) this.#newest[list] = older;
    else this.#older[newer] = older;
    this.#size[list]--;
    this.#count--;
    this.#chain[ghost] = this.#free;
    this.#free = ghost;
  }

  #home(keys: Uint32Array, at: number): number {
    return hashOf(keys, at) & (this.#bucket.length - 1);
  }

  #grow(): void {
    const rows = Math.min(this.limit, this.#rows * 2);
    const grown = <T extends Int32Array | Uint32Array | Uint8Array>(from: T, into: T): T => {
      into.set(from);
      return into;
    };
    this.#keys = grown(this.#keys, new Uint32Array(rows * 4));
    this.#chain = grown(this.#chain, new Int32Array(rows));
    this.#newer = grown(this.#newer, new Int32Array(rows));
    this.#older = grown(this.#older, new Int32Array(rows));
    this.#list = grown(this.#list, new Uint8Array(rows));
    this.#rows = rows;
    this.#bucket = new Int32Array(this.#bucket.length * 2).fill(-1);
    for (let list = 0; list < this.#lists; list++) {
      for (let g = this.#oldest[list]; g !== -1; g = this.#newer[g]) {
        const home = this.#home(this.#keys, g * 4);
        this.#chain[g] = this.#bucket[home];
        this.#bucket[home] = g;
      }
    }
  }

  visitState(visitor: StateVisitor): void {
    this.#keys = visitor.growing(this.#keys);
    this.#bucket = visitor.growing(this.#bucket);
    this.#chain = visitor.growing(this.#chain);
    this.#newer = visitor.growing(this.#newer);
    this.#older = visitor.growing(this.#older);
    this.#list = visitor.growing(this.#list);
    visitor.array(this.#newest);
    visitor.array(this.#oldest);
    visitor.array(this.#size);
    this.#rows = visitor.number(this.#rows);
    this.#fresh = visitor.number(this.#fresh);
    this.#free = visitor.number(this.#free);
    this.#count = visitor.number(this.#count);
  }

  checkIntegrity(): void {
    let count = 0;
    for (let list = 0; list < this.#lists; list++) {
      let size = 0;
      let older = -1;
      for (let g = this.#oldest[list]; g !== -1; g = this.#newer[g]) {
        invariant(this.#older[g] === older && this.#list[g] === list, 'ghosts are linked in both directions');
        invariant(this.find(this.#keys, g * 4) === g, 'a ghost is found under its key');
        invariant(++size <= this.#count, 'a list of ghosts has no cycle');
        older = g;
      }
      invariant(size === this.#size[list] && older === this.#newest[list], 'a list of ghosts knows its size');
      count += size;
    }
    invariant(count === this.#count && count <= this.limit, 'ghosts are bounded and counted');
  }
}
