/**
 * Store items whose bytes, key and digest all follow from (slot, generation): a test that reads an item back
 * knows what it must hold without keeping a copy, and a block of another slot or generation can never pass
 * for it.
 */

import { type Digest, digestBytes } from '../runtime/digest.ts';
import { countPatternMismatches, fillPattern, patternWord } from '../runtime/pattern.ts';
import type { PoolShape } from '../runtime/pool/shape.ts';
import type { StoreItem } from '../runtime/tier/tierStore.ts';

/** The 128-bit key of what a test keeps in (slot, generation). */
export function patternKey(slot: number, generation: number): Uint32Array {
  return Uint32Array.of(slot, generation, patternWord(slot, generation, 1), patternWord(generation, slot, 2));
}

/** An item to write: pattern bytes with their true digest. */
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

/** An item to read into: the same place, key and digest as `item`, over bytes that hold no pattern. */
export function emptyItem(item: StoreItem, digest: Digest = item.digest): StoreItem {
  return { ...item, digest, bytes: new Uint8Array(item.bytes.byteLength).fill(0xee) };
}

/** Number of 32-bit words of the item's bytes that are not the pattern of its (slot, generation). */
export function mismatchedWords(item: StoreItem): number {
  const { buffer, byteOffset, byteLength } = item.bytes;
  return countPatternMismatches(
    new Uint32Array(buffer, byteOffset, byteLength / 4),
    item.slot,
    item.generation,
  );
}
