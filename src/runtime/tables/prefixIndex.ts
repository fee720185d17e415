/**
 * Key -> content, by open addressing over the keys that the content table holds. Keys are chained hashes:
 * equal key, equal prefix up to there, so the index needs no tree. Deletion moves later entries back, so
 * there are no tombstones and a lookup's length depends only on what is in the table now.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import { int32Table, ordinaryMemory, type TableMemory } from './tableMemory.ts';

const EMPTY = -1;

export class PrefixIndex {
  /** Replaced when the index grows. */
  slots: Int32Array;
  /** Takes a hash to the slot where its search begins. */
  slotMask: number;
  /**
   * A slot holds the content in its low bits and, in the other bits, part of the key's hash, which tells most other
   * keys apart.
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

  /** Called when the content table has grown: its keys lie elsewhere, with room for `rows` contents. */
  grow(keys: Uint32Array, rows: number): void {
    this.#keys = keys;
    if (slotsFor(rows) === this.slots.length) return;
    const old = this.slots;
    this.slots = new Int32Array(slotsFor(rows)).fill(EMPTY);
    this.slotMask = this.slots.length - 1;
    this.#size = 0;
    for (let i = 0; i < old.length; i++) if (old[i] !== EMPTY) this.add(old[i] & this.contentMask);
  }

  /** Content with the key at `keys[at..at + 4)`, or -1. */
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
   * The first slot with the hash's tag, or EMPTY, which proves that no key with this hash is indexed. `first` is the
   * content of `slots[hash & slotMask]`: a search for several keys loads all of these first, so that the memory waits
   * overlap.
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

  /** @param keys of the content table, whose state was visited before */
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

/** Mixes the words, so that keys which are not hashes, such as a simulator's plain ids, spread too. */
function spread(w0: number, w1: number, w2: number, w3: number): number {
  let h = Math.imul(
    w0 ^ Math.imul(w1, 0x9e3779b1) ^ Math.imul(w2, 0x85ebca6b) ^ Math.imul(w3, 0xc2b2ae35),
    0x27d4eb2f,
  );
  h ^= h >>> 15;
  h = Math.imul(h, 0x2c1b3c6d);
  return h ^ (h >>> 13);
}

// Prefix lengths of many chains at once, where every indexed content has all its ancestors indexed. Halving waits for
// memory at every step, since the next place depends on what was found. The chains take each step together: one pass
// computes all addresses and loads from them without using the result, so that the waits overlap; the next pass uses
// what has arrived.
//
// Halving trusts the hash bits in the slots: they prove that a key is absent, and seldom err about presence. The
// whole key is compared only where halving ends; if it differs, that block is absent.
//
// Scratch space is of a fixed size, a few KB for a group of chains; calls leave no garbage.

/** Chains that are searched together: many more than a core's outstanding loads, few enough for its nearest cache. */
const GROUP = 256;

/** Tables of a group's length. A call fills what it reads, so all searches of a thread share them. */
const scratch: readonly Int32Array[] = Array.from({ length: 9 }, () => new Int32Array(GROUP));
const scratchWords: Uint32Array = new Uint32Array(GROUP);

export class PrefixSearch {
  readonly #index: PrefixIndex;
  /** Chains whose length is not known yet, and the ones among them that are being narrowed. */
  readonly #open: Int32Array = scratch[0];
  readonly #narrowing: Int32Array = scratch[1];
  /**
   * First key of each chain, in words; block `present` may be in the index, block `absent` is not. Blocks count from 1.
   */
  readonly #start: Int32Array = scratch[2];
  readonly #present: Int32Array = scratch[3];
  readonly #absent: Int32Array = scratch[4];
  /**
   * One pass leaves these to the next, by place in a list of chains: the key, its hash, the slot, and the content whose
   * key it may be.
   */
  readonly #at: Int32Array = scratch[5];
  readonly #hash: Int32Array = scratch[6];
  readonly #slot: Int32Array = scratch[7];
  readonly #candidate: Int32Array = scratch[8];
  readonly #firstWord: Uint32Array = scratchWords;

  constructor(index: PrefixIndex) {
    this.#index = index;
  }

  /** Leading blocks in the index, of the `count` whose keys lie in `keys`, four words a block. */
  length(keys: Uint32Array, count: number): number {
    return prefixLength(this.#index, keys, count);
  }

  /**
   * Sets `out[r]` to the `length` of each of `requests` chains: the `counts[r]` keys from key `firsts[r]` on.
   */
  lengths(
    keys: Uint32Array,
    firsts: Uint32Array,
    counts: Uint32Array,
    out: Uint32Array,
    requests: number,
  ): void {
    const list = this.#open;
    const start = this.#start;
    const present = this.#present;
    for (let from = 0; from < requests; from += GROUP) {
      const chains = Math.min(GROUP, requests - from);
      let open = 0;
      for (let c = 0; c < chains; c++) {
        const count = counts[from + c];
        start[c] = firsts[from + c] * 4;
        present[c] = count;
        out[from + c] = 0;
        if (count > 0) list[open++] = c;
      }
      while (open > 0) {
        open = this.#confirm(keys, open, out, from);
        open = this.#narrow(keys, open);
      }
    }
  }

  /**
   * Sets the length of the chains whose block `present` is in the index; for the others it is absent. @returns the
   * number of others
   */
  #confirm(keys: Uint32Array, open: number, out: Uint32Array, from: number): number {
    const list = this.#open;
    const start = this.#start;
    const present = this.#present;
    const absent = this.#absent;
    const at = this.#at;
    const candidate = this.#candidate;
    const firstWord = this.#firstWord;
    const index = this.#index;
    const own = index.keys;
    for (let i = 0; i < open; i++) at[i] = start[list[i]] + (present[list[i]] - 1) * 4;
    this.#lookUp(keys, open);
    for (let i = 0; i < open; i++) firstWord[i] = own[Math.max(candidate[i], 0) * 4];
    let others = 0;
    for (let i = 0; i < open; i++) {
      const c = list[i];
      const k = at[i];
      const isFirst = candidate[i] !== -1 && firstWord[i] === keys[k] && index.isKeyOf(candidate[i], keys, k);
      if (isFirst || (candidate[i] !== -1 && index.find(keys, k) !== -1)) {
        out[from + c] = present[c];
      } else {
        absent[c] = present[c];
        present[c] = 0;
        list[others++] = c;
      }
    }
    return others;
  }

  /**
   * Halves (present, absent) of each chain until they are adjacent. @returns the number of chains of which something
   * may be present
   */
  #narrow(keys: Uint32Array, open: number): number {
    const all = this.#open;
    const list = this.#narrowing;
    const start = this.#start;
    const present = this.#present;
    const absent = this.#absent;
    const at = this.#at;
    const candidate = this.#candidate;
    let left = 0;
    for (let i = 0; i < open; i++) {
      list[left] = all[i];
      if (absent[all[i]] > 1) left++;
    }
    while (left > 0) {
      for (let i = 0; i < left; i++) {
        const c = list[i];
        at[i] = start[c] + (((present[c] + absent[c]) >> 1) - 1) * 4;
      }
      this.#lookUp(keys, left);
      let next = 0;
      for (let i = 0; i < left; i++) {
        const c = list[i];
        const low = present[c];
        const high = absent[c];
        const middle = (low + high) >> 1;
        // All ones if absent. Which half goes on is as good as random, so no branch is to guess it.
        const down = candidate[i] >> 31;
        present[c] = (low & down) | (middle & ~down);
        absent[c] = (middle & down) | (high & ~down);
        list[next] = c;
        if (present[c] + 1 < absent[c]) next++;
      }
      left = next;
    }
    let some = 0;
    for (let i = 0; i < open; i++) {
      all[some] = all[i];
      if (present[all[i]] > 0) some++;
    }
    return some;
  }

  /** Sets, for each of the first `count` places of `at`, the first content that may have its key, or -1. */
  #lookUp(keys: Uint32Array, count: number): void {
    const index = this.#index;
    const { slots, slotMask, contentMask } = index;
    const at = this.#at;
    const hashes = this.#hash;
    const loaded = this.#slot;
    const candidate = this.#candidate;
    for (let i = 0; i < count; i++) {
      const hash = hashOf(keys, at[i]);
      hashes[i] = hash;
      loaded[i] = slots[hash & slotMask];
    }
    for (let i = 0; i < count; i++) {
      const slot = index.seek(hashes[i], loaded[i]);
      candidate[i] = slot === EMPTY ? -1 : slot & contentMask;
    }
  }
}

// Prefix length of one chain, where every indexed content has all its ancestors indexed. Each step looks at three
// places at once, whose memory waits overlap, and leaves a quarter of the chain: half as many waits as halving. Steps
// trust the tags in the slots, as above; the whole key decides in the end.

/** Leading blocks in the index, of the `count` whose keys lie in `keys`, four words a block. */
function prefixLength(index: PrefixIndex, keys: Uint32Array, count: number): number {
  if (count === 0) return 0;
  return index.find(keys, (count - 1) * 4) !== -1 ? count : shorterLength(index, keys, count);
}

/** Block `limit` is absent. Blocks count from 1. */
function shorterLength(index: PrefixIndex, keys: Uint32Array, limit: number): number {
  const { slots, slotMask, contentMask } = index;
  let absent = limit;
  for (;;) {
    let present = 0;
    let slot = EMPTY;
    while (present + 1 < absent) {
      const step = (absent - present + 3) >> 2;
      // Places beyond the absent block count as that block.
      const near = present + step;
      const middle = Math.min(near + step, absent);
      const far = Math.min(middle + step, absent);
      const nearHash = hashOf(keys, (near - 1) * 4);
      const middleHash = hashOf(keys, (middle - 1) * 4);
      const farHash = hashOf(keys, (far - 1) * 4);
      const nearFirst = slots[nearHash & slotMask];
      const middleFirst = slots[middleHash & slotMask];
      const farFirst = slots[farHash & slotMask];

      const middleSlot = index.seek(middleHash, middleFirst);
      if (middleSlot === EMPTY) {
        const nearSlot = index.seek(nearHash, nearFirst);
        if (nearSlot === EMPTY) {
          absent = near;
        } else {
          slot = nearSlot;
          present = near;
          absent = middle;
        }
      } else {
        const farSlot = index.seek(farHash, farFirst);
        if (farSlot === EMPTY) {
          slot = middleSlot;
          present = middle;
          absent = far;
        } else {
          slot = farSlot;
          present = Math.min(far, absent - 1); // the absent block's tag may be another's
        }
      }
    }
    if (present === 0) return 0;
    const at = (present - 1) * 4;
    if (index.isKeyOf(slot & contentMask, keys, at) || index.find(keys, at) !== -1) return present;
    absent = present;
  }
}
