/**
 * Store items whose bytes, key and digest follow from (slot, generation), and random numbers from a seed. A
 * test that reads an item back knows its bytes without a copy, and a block of another slot or generation
 * never passes for it.
 */

import { type Digest, digestBytes } from '../runtime/digest.ts';
import * as is from '../runtime/kinds.ts';
import { checkInputs } from '../runtime/options.ts';
import { countPatternMismatches, fillPattern, patternWord } from '../runtime/pattern.ts';
import type { PoolShape } from '../runtime/tables/slotPool.ts';
import type { StoreItem } from '../runtime/tier/tierStore.ts';

/** The 128-bit key of the item of (slot, generation). */
export function patternKey(slot: number, generation: number): Uint32Array {
  return Uint32Array.of(slot, generation, patternWord(slot, generation, 1), patternWord(generation, slot, 2));
}

/** An item to write: the pattern's bytes and their digest. */
export function patternItem(
  shape: PoolShape,
  slot: number,
  sizeClass: number,
  generation: number,
): StoreItem {
  const bytes = new Uint8Array(shape.slotBytes[sizeClass]);
  fillPattern(new Uint32Array(bytes.buffer), slot, generation);
  return {
    slot,
    sizeClass,
    generation,
    key: patternKey(slot, generation),
    digest: digestBytes(bytes),
    bytes,
  };
}

/** An item to read into: place, key and digest of `item`, over bytes of 0xee. */
export function emptyItem(item: StoreItem, digest: Digest = item.digest): StoreItem {
  return { ...item, digest, bytes: new Uint8Array(item.bytes.byteLength).fill(0xee) };
}

/** Number of 32-bit words that differ from the pattern of the item's (slot, generation). */
export function mismatchedWords(item: StoreItem): number {
  const { buffer, byteOffset, byteLength } = item.bytes;
  return countPatternMismatches(
    new Uint32Array(buffer, byteOffset, byteLength / 4),
    item.slot,
    item.generation,
  );
}

// ---- random numbers from a seed
//
// The generator is a Weyl sequence through the finalizer of MurmurHash3, as in pattern.ts: good enough to
// choose slots and sizes, not for statistics. Suites name their seed in the test's title and take it from
// TIERKV_SEED, so that a failure can be repeated.

/** Random numbers from a seed, the same on every machine. */
export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    checkInputs({ seed }, { seed: is.number() });
    this.#state = seed | 0;
  }

  /** An unsigned 32-bit integer. */
  word(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let x = this.#state;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    return (x ^ (x >>> 16)) >>> 0;
  }

  /** An integer from 0 up to, but not including, `limit`. */
  below(limit: number): number {
    return Math.floor((this.word() / 2 ** 32) * limit);
  }

  /** True with probability `share`. */
  chance(share: number): boolean {
    return this.word() / 2 ** 32 < share;
  }

  /** `count` different integers below `limit`, in random order. */
  distinctBelow(limit: number, count: number): number[] {
    const chosen = new Set<number>();
    while (chosen.size < Math.min(count, limit)) chosen.add(this.below(limit));
    return [...chosen];
  }
}

/** The value of TIERKV_SEED if it is set, else `fallback`. */
export function testSeed(fallback: number): number {
  const given = Number(process.env.TIERKV_SEED);
  return Number.isSafeInteger(given) && given !== 0 ? given : fallback;
}
