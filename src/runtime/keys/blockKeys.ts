/**
 * The keys of a sequence's blocks in order, four 32-bit words a key, in one typed array that grows by
 * doubling. An index reads key i at `words[4 * i]` and following, without an object a key. `words` is
 * replaced when it grows, so hold the BlockKeys and not its array across an append.
 */

import { invariant } from '../errors.ts';

export const wordsPerKey = 4;

export class BlockKeys {
  #words: Uint32Array;
  #length = 0;

  constructor(capacityKeys: number = 16) {
    invariant(Number.isSafeInteger(capacityKeys) && capacityKeys >= 1, 'room for at least one key');
    this.#words = new Uint32Array(capacityKeys * wordsPerKey);
  }

  /** Keys held; words from `length * wordsPerKey` on mean nothing. */
  get length(): number {
    return this.#length;
  }

  get words(): Uint32Array {
    return this.#words;
  }

  /** Makes room for `keys` keys in all, so that appending up to there replaces no array. */
  reserve(keys: number): void {
    if (keys * wordsPerKey <= this.#words.length) return;
    const grown = new Uint32Array(Math.max(keys * wordsPerKey, 2 * this.#words.length));
    grown.set(this.#words.subarray(0, this.#length * wordsPerKey));
    this.#words = grown;
  }

  /** Appends the four words at `source[at]`. */
  append(source: Uint32Array, at: number): void {
    this.reserve(this.#length + 1);
    const to = this.#length * wordsPerKey;
    this.#words[to] = source[at];
    this.#words[to + 1] = source[at + 1];
    this.#words[to + 2] = source[at + 2];
    this.#words[to + 3] = source[at + 3];
    this.#length++;
  }

  /** Forgets all but the first `keys` keys. */
  truncate(keys: number): void {
    invariant(keys >= 0 && keys <= this.#length, () => `${this.#length} keys cannot be cut to ${keys}`);
    this.#length = keys;
  }

  /** Whether key `index` equals the four words at `other[at]`. */
  equalsAt(index: number, other: Uint32Array, at: number): boolean {
    const from = index * wordsPerKey;
    return (
      this.#words[from] === other[at] &&
      this.#words[from + 1] === other[at + 1] &&
      this.#words[from + 2] === other[at + 2] &&
      this.#words[from + 3] === other[at + 3]
    );
  }

  /** Key `index` as 32 hexadecimal digits, for logs and messages. */
  toHex(index: number): string {
    invariant(index >= 0 && index < this.#length, () => `there is no key ${index} among ${this.#length}`);
    return keyToHex(this.#words, index * wordsPerKey);
  }
}

/** The key at `words[at]` as 32 hexadecimal digits, in the order of its bytes. */
export function keyToHex(words: Uint32Array, at: number = 0): string {
  let hex = '';
  for (let byte = 0; byte < 4 * wordsPerKey; byte++) {
    const value = (words[at + (byte >> 2)] >>> ((byte & 3) * 8)) & 0xff;
    hex += value.toString(16).padStart(2, '0');
  }
  return hex;
}
