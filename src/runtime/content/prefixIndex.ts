/**
 * Key -> content, by open addressing over the keys that the content table holds. Keys are chained hashes: equal key,
 * equal prefix up to there, so the index needs no tree. Deletion moves later entries back, so there are no tombstones
 * and a lookup's length depends only on what is in the table now.
 */

import { invariant } from '../errors.ts';

export class PrefixIndex {
  readonly #keys: Uint32Array;
  readonly #slots: Int32Array;
  readonly #mask: number;
  #size = 0;

  /** @param keys four words a content, owned by the content table */
  constructor(keys: Uint32Array, capacity: number) {
    let slots = 16;
    while (slots < capacity * 1.5) slots *= 2;
    this.#keys = keys;
    this.#slots = new Int32Array(slots).fill(-1);
    this.#mask = slots - 1;
  }

  get size(): number {
    return this.#size;
  }

  find(keys: Uint32Array, at: number): number {
    const w0 = keys[at]!;
    const w1 = keys[at + 1]!;
    const w2 = keys[at + 2]!;
    const w3 = keys[at + 3]!;
    const own = this.#keys;
    for (let i = home(w0, w1, w2, w3) & this.#mask; ; i = (i + 1) & this.#mask) {
      const content = this.#slots[i]!;
      if (content === -1) return -1;
      const k = content * 4;
      if (own[k] === w0 && own[k + 1] === w1 && own[k + 2] === w2 && own[k + 3] === w3) return content;
    }
  }

  /** Adds a content whose key the index does not hold. */
  add(content: number): void {
    let i = this.#homeOf(content);
    while (this.#slots[i] !== -1) i = (i + 1) & this.#mask;
    this.#slots[i] = content;
    this.#size++;
  }

  delete(content: number): void {
    let hole = this.#homeOf(content);
    while (this.#slots[hole] !== content) {
      invariant(this.#slots[hole] !== -1, 'a content to delete is in the index');
      hole = (hole + 1) & this.#mask;
    }
    for (let i = (hole + 1) & this.#mask; this.#slots[i] !== -1; i = (i + 1) & this.#mask) {
      const wanted = this.#homeOf(this.#slots[i]!);
      const distanceToHole = (hole - wanted) & this.#mask;
      if (distanceToHole <= ((i - wanted) & this.#mask)) {
        this.#slots[hole] = this.#slots[i]!;
        hole = i;
      }
    }
    this.#slots[hole] = -1;
    this.#size--;
  }

  #homeOf(content: number): number {
    const k = content * 4;
    const keys = this.#keys;
    return home(keys[k]!, keys[k + 1]!, keys[k + 2]!, keys[k + 3]!) & this.#mask;
  }

  checkIntegrity(): void {
    let count = 0;
    for (const content of this.#slots) {
      if (content === -1) continue;
      count++;
      invariant(
        this.find(this.#keys, content * 4) === content,
        'every indexed content is found under its key',
      );
    }
    invariant(count === this.#size, 'the index knows its size');
  }
}

/** Spreads also keys that are not hashes, such as a simulator's plain ids. */
function home(w0: number, w1: number, w2: number, w3: number): number {
  let h = Math.imul(
    w0 ^ Math.imul(w1, 0x9e3779b1) ^ Math.imul(w2, 0x85ebca6b) ^ Math.imul(w3, 0xc2b2ae35),
    0x27d4eb2f,
  );
  h ^= h >>> 15;
  h = Math.imul(h, 0x2c1b3c6d);
  return (h ^ (h >>> 13)) >>> 0;
}
