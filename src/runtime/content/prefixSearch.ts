/**
 * How long a prefix of each of many chains the index holds, where whoever is indexed has all its ancestors
 * indexed. Halving waits for memory at every step, since where to look next depends on what was found. The
 * chains take each step together: one pass computes all addresses and loads what lies there without looking
 * at it, so that the waits overlap; the next pass looks at what has arrived. One chain alone is another
 * matter (prefixLength.ts).
 *
 * The halves are told apart by the hash bits in the slots alone: they prove that a key is absent, and seldom
 * err about presence. Only where the halving ends is the whole key compared; if it differs, that block is
 * absent after all.
 *
 * Scratch space is of a fixed size, a few KB for a group of chains; calls leave no garbage.
 */

import { EMPTY, hashOf, type PrefixIndex } from './prefixIndex.ts';
import { prefixLength } from './prefixLength.ts';

/**
 * Chains that are searched together: many more than a core's outstanding loads, few enough for its nearest
 * cache.
 */
const GROUP = 256;

export class PrefixSearch {
  readonly #index: PrefixIndex;
  /** Chains whose length is not known yet, and of these, the ones that are being narrowed. */
  readonly #open: Int32Array = new Int32Array(GROUP);
  readonly #narrowing: Int32Array = new Int32Array(GROUP);
  /**
   * By chain: its first key, in words; block `present` may be in the index, block `absent` is not. Blocks
   * count from 1.
   */
  readonly #start: Int32Array = new Int32Array(GROUP);
  readonly #present: Int32Array = new Int32Array(GROUP);
  readonly #absent: Int32Array = new Int32Array(GROUP);
  /**
   * By place in a list of chains, what a pass leaves to the next: the key, its hash, the slot, and whose key
   * it may be.
   */
  readonly #at: Int32Array = new Int32Array(GROUP);
  readonly #hash: Int32Array = new Int32Array(GROUP);
  readonly #slot: Int32Array = new Int32Array(GROUP);
  readonly #candidate: Int32Array = new Int32Array(GROUP);
  readonly #firstWord: Uint32Array = new Uint32Array(GROUP);

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
   * Those whose block `present` is in the index have their length; for the others it is absent. @returns the
   * others
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
   * Halves (present, absent) of each until nothing lies between. @returns those of which something may be
   * present
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

  /**
   * The first content that may have the key at each of the first `count` places of `at`, -1 where none has
   * it.
   */
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
