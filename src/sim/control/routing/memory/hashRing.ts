/**
 * A ring of instances for consistent hashing: each stands at several places that its number gives, and a hash
 * belongs to the first place at or after it. It depends on the set of instances alone.
 */

import { wordsPerKey } from '../../../../runtime/keys/index.ts';

const PLACES = 160;

interface Place {
  readonly at: number;
  readonly instance: number;
}

export class HashRing {
  #instances: readonly number[] = [];
  #places: readonly Place[] = [];

  /** Number of the instance, of these, that the hash belongs to. @param instances at least one */
  owner(hash: number, instances: readonly number[]): number {
    const same =
      instances.length === this.#instances.length &&
      instances.every((each, i) => each === this.#instances[i]);
    if (!same) this.#place(instances);
    const places = this.#places;
    let low = 0;
    let high = places.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (places[middle].at < hash) low = middle + 1;
      else high = middle;
    }
    return places[low % places.length].instance;
  }

  #place(instances: readonly number[]): void {
    this.#instances = [...instances];
    this.#places = instances
      .flatMap((instance) =>
        Array.from({ length: PLACES }, (_, i): Place => ({ at: mixed(mixed(instance + 1) ^ i), instance })),
      )
      .sort((a, b) => a.at - b.at || a.instance - b.instance);
  }
}

/** 32 bits of a block's key. */
export function keyHash(words: Uint32Array, block: number): number {
  let hash = 0;
  for (let i = 0; i < wordsPerKey; i++) hash = mixed(hash ^ words[block * wordsPerKey + i]);
  return hash;
}

/** 32 bits of a text, by FNV-1a over its code units. */
export function textHash(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return mixed(hash);
}

function mixed(value: number): number {
  let h = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
