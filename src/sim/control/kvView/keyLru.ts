/** Block keys in the order of their last use. It has no limit: whoever adds keys takes out the oldest. */

import { keyToHex, wordsPerKey } from '../../../runtime/keys/index.ts';
import { KeyTable } from './keyTable.ts';

const NONE = -1;

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
  snapshot(): Uint32Array {
    const words = new Uint32Array(this.size * wordsPerKey);
    let to = 0;
    for (let slot = this.#oldest; slot !== NONE; slot = this.#newer[slot], to += wordsPerKey) {
      words.set(this.words.subarray(slot * wordsPerKey, (slot + 1) * wordsPerKey), to);
    }
    return words;
  }

  restore(words: Uint32Array): void {
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
