/**
 * Key -> content, by open addressing over the keys that the content table holds. Keys are chained hashes:
 * equal key, equal prefix up to there, so the index needs no tree. Deletion moves later entries back, so
 * there are no tombstones and a lookup's length depends only on what is in the table now.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';
import { int32Table, ordinaryMemory, type TableMemory } from './tableMemory.ts';

export const EMPTY = -1;

export class PrefixIndex {
  /** Replaced when the index grows. */
  slots: Int32Array;
  /** Takes a hash to the slot where its search begins. */
  slotMask: number;
  /**
   * A slot holds the content in its low bits and, in the rest, bits of the key's hash that tell most others
   * apart.
   */
  readonly contentMask: number;
  #keys: Uint32Array;
  #size = 0;

  /**
   * @param keys four words a content, owned by the content table
   * @param rows contents that it has room for now, of `capacity`
   */
  constructor(
    keys: Uint32Array,
    capacity: number,
    memory: TableMemory = ordinaryMemory,
    rows: number = capacity,
  ) {
    const slots = slotsFor(rows);
    let contents = 2;
    while (contents <= capacity) contents *= 2;
    invariant(contents <= 2 ** 31, 'contents within limits');
    this.#keys = keys;
    this.slots = int32Table(memory, slots).fill(EMPTY);
    this.slotMask = slots - 1;
    this.contentMask = contents - 1;
  }

  get size(): number {
    return this.#size;
  }

  /** Four words a content. */
  get keys(): Uint32Array {
    return this.#keys;
  }

  /** The content table has grown: its keys lie elsewhere, and there is room for so many. */
  grow(keys: Uint32Array, rows: number): void {
    this.#keys = keys;
    if (slotsFor(rows) === this.slots.length) return;
    const old = this.slots;
    this.slots = new Int32Array(slotsFor(rows)).fill(EMPTY);
    this.slotMask = this.slots.length - 1;
    this.#size = 0;
    for (let i = 0; i < old.length; i++) if (old[i] !== EMPTY) this.add(old[i] & this.contentMask);
  }

  find(keys: Uint32Array, at: number): number {
    const w0 = keys[at];
    const w1 = keys[at + 1];
    const w2 = keys[at + 2];
    const w3 = keys[at + 3];
    const own = this.#keys;
    const contentMask = this.contentMask;
    const hash = spread(w0, w1, w2, w3);
    const tag = hash & ~contentMask;
    for (let i = hash & this.slotMask; ; i = (i + 1) & this.slotMask) {
      const slot = this.slots[i];
      if (slot === EMPTY) return -1;
      if ((slot & ~contentMask) !== tag) continue;
      const content = slot & contentMask;
      const k = content * 4;
      if (own[k] === w0 && own[k + 1] === w1 && own[k + 2] === w2 && own[k + 3] === w3) return content;
    }
  }

  /**
   * The first slot whose tag is that of the hash, or EMPTY, which proves that no key with this hash is here.
   * `first` is what `slots[hash & slotMask]` holds: who searches for several keys loads all of these first,
   * so that the waits overlap.
   */
  seek(hash: number, first: number): number {
    const { slots, slotMask } = this;
    const tagMask = ~this.contentMask;
    let slot = first;
    for (let i = hash + 1; slot !== EMPTY && ((slot ^ hash) & tagMask) !== 0; i++) slot = slots[i & slotMask];
    return slot;
  }

  /** Whether the content's key is the one at `keys[at..at + 4)`. */
  isKeyOf(content: number, keys: Uint32Array, at: number): boolean {
    const own = this.#keys;
    const k = content * 4;
    return (
      own[k] === keys[at] &&
      own[k + 1] === keys[at + 1] &&
      own[k + 2] === keys[at + 2] &&
      own[k + 3] === keys[at + 3]
    );
  }

  /** Adds a content whose key the index does not hold. */
  add(content: number): void {
    const hash = hashOf(this.#keys, content * 4);
    let i = hash & this.slotMask;
    while (this.slots[i] !== EMPTY) i = (i + 1) & this.slotMask;
    this.slots[i] = (hash & ~this.contentMask) | content;
    this.#size++;
  }

  delete(content: number): void {
    const hash = hashOf(this.#keys, content * 4);
    const wanted = (hash & ~this.contentMask) | content;
    let hole = hash & this.slotMask;
    while (this.slots[hole] !== wanted) {
      invariant(this.slots[hole] !== EMPTY, 'a content to delete is in the index');
      hole = (hole + 1) & this.slotMask;
    }
    for (let i = (hole + 1) & this.slotMask; this.slots[i] !== EMPTY; i = (i + 1) & this.slotMask) {
      const home = hashOf(this.#keys, (this.slots[i] & this.contentMask) * 4) & this.slotMask;
      if (((hole - home) & this.slotMask) <= ((i - home) & this.slotMask)) {
        this.slots[hole] = this.slots[i];
        hole = i;
      }
    }
    this.slots[hole] = EMPTY;
    this.#size--;
  }

  /** @param keys of the content table, whose state was shown before */
  visitState(visitor: StateVisitor, keys: Uint32Array): void {
    this.#keys = keys;
    this.slots = visitor.growing(this.slots);
    this.slotMask = this.slots.length - 1;
    this.#size = visitor.number(this.#size);
  }

  checkIntegrity(): void {
    let count = 0;
    for (const slot of this.slots) {
      if (slot === EMPTY) continue;
      count++;
      const content = slot & this.contentMask;
      invariant(
        this.find(this.#keys, content * 4) === content,
        'every indexed content is found under its key',
      );
    }
    invariant(count === this.#size, 'the index knows its size');
  }
}

function slotsFor(contents: number): number {
  let slots = 16;
  while (slots < contents * 1.5) slots *= 2;
  return slots;
}

export function hashOf(keys: Uint32Array, at: number): number {
  return spread(keys[at], keys[at + 1], keys[at + 2], keys[at + 3]);
}

/** Spreads also keys that are not hashes, such as a simulator's plain ids. */
function spread(w0: number, w1: number, w2: number, w3: number): number {
  let h = Math.imul(
    w0 ^ Math.imul(w1, 0x9e3779b1) ^ Math.imul(w2, 0x85ebca6b) ^ Math.imul(w3, 0xc2b2ae35),
    0x27d4eb2f,
  );
  h ^= h >>> 15;
  h = Math.imul(h, 0x2c1b3c6d);
  return h ^ (h >>> 13);
}
