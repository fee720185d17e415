/**
 * Tables of block keys, four words each: keys in the order of their last use, and keys by slot. They grow as they fill, and
 * their layout depends on the keys and calls alone.
 */

import { invariant } from '../../runtime/errors.ts';
import { keyToHex, wordsPerKey } from '../../runtime/keys/keyChain.ts';

/** End of a list of slots. */
const NONE = -1;

//  Block keys in the order of their last use. It has no limit: its owner takes out the oldest.

export class KeyLru {
  readonly #table: KeyTable = new KeyTable();
  #older: Int32Array = new Int32Array(this.#table.slots);
  #newer: Int32Array = new Int32Array(this.#table.slots);
  #oldest = NONE;
  #newest = NONE;

  get size(): number {
    return this.#table.size;
  }

  /** Keys by slot, for what `oldest` and `touch` return. */
  get words(): Uint32Array {
    return this.#table.words;
  }

  has(source: Uint32Array, at: number): boolean {
    return this.#table.find(source, at) !== NONE;
  }

  /** Puts the key in, or moves it, to the newest place. @returns its slot */
  touch(source: Uint32Array, at: number): number {
    const before = this.#table.size;
    const slot = this.#table.findOrAdd(source, at);
    if (this.#table.size === before) {
      if (slot === this.#newest) return slot;
      this.#unlink(slot);
    } else if (this.#older.length < this.#table.slots) {
      this.#older = grown(this.#older, this.#table.slots);
      this.#newer = grown(this.#newer, this.#table.slots);
    }
    this.#older[slot] = this.#newest;
    this.#newer[slot] = NONE;
    if (this.#newest === NONE) this.#oldest = slot;
    else this.#newer[this.#newest] = slot;
    this.#newest = slot;
    return slot;
  }

  /** Moves the key to the newest place if it is there. */
  refresh(source: Uint32Array, at: number): boolean {
    if (this.#table.find(source, at) === NONE) return false;
    this.touch(source, at);
    return true;
  }

  /** Slot of the key that was used longest ago, or -1. */
  oldest(): number {
    return this.#oldest;
  }

  /** The slot used next after `slot`, or -1. */
  newerThan(slot: number): number {
    return this.#newer[slot];
  }

  removeSlot(slot: number): void {
    this.#unlink(slot);
    this.#table.remove(slot);
  }

  remove(source: Uint32Array, at: number): boolean {
    const slot = this.#table.find(source, at);
    if (slot === NONE) return false;
    this.removeSlot(slot);
    return true;
  }

  clear(): void {
    this.#table.clear();
    this.#oldest = NONE;
    this.#newest = NONE;
  }

  /** Keys as hexadecimal digits, the oldest first. */
  oldestKeys(most: number): string[] {
    const keys: string[] = [];
    for (let slot = this.#oldest; slot !== NONE && keys.length < most; slot = this.#newer[slot]) {
      keys.push(keyToHex(this.words, slot * wordsPerKey));
    }
    return keys;
  }

  /** All keys, the oldest first, four words each. */
  /** Words of all keys, the one used longest ago first. */
  inOrder(): Uint32Array {
    const words = new Uint32Array(this.size * wordsPerKey);
    let to = 0;
    for (let slot = this.#oldest; slot !== NONE; slot = this.#newer[slot], to += wordsPerKey) {
      words.set(this.words.subarray(slot * wordsPerKey, (slot + 1) * wordsPerKey), to);
    }
    return words;
  }

  /** Puts keys that `inOrder` gave in the place of all that are here. */
  fill(words: Uint32Array): void {
    this.clear();
    for (let at = 0; at < words.length; at += wordsPerKey) this.touch(words, at);
  }

  #unlink(slot: number): void {
    const older = this.#older[slot];
    const newer = this.#newer[slot];
    if (older === NONE) this.#oldest = newer;
    else this.#newer[older] = newer;
    if (newer === NONE) this.#newest = older;
    else this.#older[newer] = older;
  }
}

function grown(old: Int32Array, length: number): Int32Array {
  const longer = new Int32Array(length);
  longer.set(old);
  return longer;
}

// From block keys of four words to slots: small integers that stay the same while the key is in the table,
// and are used again after it has left. Open addressing with linear probing; a removal closes the gap, so
// there are no tombstones and the layout depends on the keys alone.

const EMPTY = -1;
const FIRST_SLOTS = 64;

export class KeyTable {
  /** Keys by slot. Replaced when the table grows. */
  words: Uint32Array = new Uint32Array(FIRST_SLOTS * wordsPerKey);
  size = 0;
  #cells: Int32Array = new Int32Array(FIRST_SLOTS * 2).fill(EMPTY);
  #mask = FIRST_SLOTS * 2 - 1;
  /** Slots that were used and are free now, a stack. */
  #free: number[] = [];
  #used = 0;

  /** Slots that the table has room for; columns beside it are as long. */
  get slots(): number {
    return this.words.length / wordsPerKey;
  }

  /** Slot of the key at `source[at]`, or -1. */
  find(source: Uint32Array, at: number): number {
    return this.#cells[this.#cellOf(source, at)];
  }

  /** Slot of the key, which is put in where it was not. `size` says whether it was. */
  findOrAdd(source: Uint32Array, at: number): number {
    let cell = this.#cellOf(source, at);
    if (this.#cells[cell] !== EMPTY) return this.#cells[cell];
    if (this.size === this.slots) {
      this.#grow();
      cell = this.#cellOf(source, at);
    }
    const slot = this.#free.pop() ?? this.#used++;
    const to = slot * wordsPerKey;
    for (let i = 0; i < wordsPerKey; i++) this.words[to + i] = source[at + i];
    this.#cells[cell] = slot;
    this.size++;
    return slot;
  }

  remove(slot: number): void {
    let hole = this.#cellOf(this.words, slot * wordsPerKey);
    invariant(this.#cells[hole] === slot, 'only a key of the table can be removed');
    this.#free.push(slot);
    this.size--;
    // entries behind the hole move into it unless their own place lies between the two
    for (let cell = (hole + 1) & this.#mask; this.#cells[cell] !== EMPTY; cell = (cell + 1) & this.#mask) {
      const home = this.#homeOf(this.words, this.#cells[cell] * wordsPerKey);
      const stays = ((cell - home) & this.#mask) < ((cell - hole) & this.#mask);
      if (stays) continue;
      this.#cells[hole] = this.#cells[cell];
      hole = cell;
    }
    this.#cells[hole] = EMPTY;
  }

  clear(): void {
    this.#cells.fill(EMPTY);
    this.#free = [];
    this.#used = 0;
    this.size = 0;
  }

  #homeOf(source: Uint32Array, at: number): number {
    let h = source[at] ^ Math.imul(source[at + 1], 0x9e3779b1);
    h ^= Math.imul(source[at + 2], 0x85ebca6b) ^ Math.imul(source[at + 3], 0xc2b2ae35);
    h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
    return (h ^ (h >>> 13)) & this.#mask;
  }

  /** The cell that holds the key, or the empty one where it belongs. */
  #cellOf(source: Uint32Array, at: number): number {
    let cell = this.#homeOf(source, at);
    for (let slot = this.#cells[cell]; slot !== EMPTY; slot = this.#cells[cell]) {
      const from = slot * wordsPerKey;
      const words = this.words;
      if (
        words[from] === source[at] &&
        words[from + 1] === source[at + 1] &&
        words[from + 2] === source[at + 2] &&
        words[from + 3] === source[at + 3]
      ) {
        return cell;
      }
      cell = (cell + 1) & this.#mask;
    }
    return cell;
  }

  #grow(): void {
    const words = new Uint32Array(this.words.length * 2);
    words.set(this.words);
    this.words = words;
    const slots = this.#cells.filter((slot) => slot !== EMPTY);
    this.#cells = new Int32Array(this.#cells.length * 2).fill(EMPTY);
    this.#mask = this.#cells.length - 1;
    for (const slot of slots) this.#cells[this.#cellOf(words, slot * wordsPerKey)] = slot;
  }
}
