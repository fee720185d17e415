/**
 * The keys that are believed to lie in each tier of an instance, in the order of their last use. The
 * directories of all instances are told of each change.
 */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import type { KeyDirectory } from './keyDirectory.ts';
import { KeyLru } from './keyLru.ts';

export class TierKeys {
  readonly capacityBlocks: readonly number[];
  /** By tier, HBM first. */
  readonly #tiers: readonly KeyLru[];
  readonly #instance: number;
  readonly #directories: readonly KeyDirectory[];

  /** @param directories one for each tier, or more */
  constructor(instance: number, capacityBlocks: readonly number[], directories: readonly KeyDirectory[]) {
    this.capacityBlocks = capacityBlocks;
    this.#tiers = capacityBlocks.map(() => new KeyLru());
    this.#instance = instance;
    this.#directories = directories;
  }

  get tiers(): number {
    return this.#tiers.length;
  }

  /** Keys in the tier; 0 for one that the instance has not. */
  size(tier: number): number {
    return this.#tiers[tier]?.size ?? 0;
  }

  /** The fastest tier that holds the key, or -1. */
  tierOf(words: Uint32Array, at: number): number {
    for (let tier = 0; tier < this.#tiers.length; tier++) if (this.#tiers[tier].has(words, at)) return tier;
    return -1;
  }

  /** Puts the key in, or makes it the one used last. */
  touch(tier: number, words: Uint32Array, at: number): void {
    this.#tiers[tier].touch(words, at);
    this.#directories[tier].add(this.#instance, words, at);
  }

  /** Makes the key the one used last if it is there. */
  refresh(tier: number, words: Uint32Array, at: number): void {
    this.#tiers[tier].refresh(words, at);
  }

  remove(tier: number, words: Uint32Array, at: number): void {
    if (this.#tiers[tier].remove(words, at)) this.#directories[tier].remove(this.#instance, words, at);
  }

  /** Moves the key used longest ago one tier down, or out of the last one. */
  sinkOldest(tier: number): void {
    const from = this.#tiers[tier];
    const slot = from.oldest();
    const at = slot * wordsPerKey;
    if (tier + 1 < this.#tiers.length) this.touch(tier + 1, from.words, at);
    this.#directories[tier].remove(this.#instance, from.words, at);
    from.removeSlot(slot);
  }

  /** Keys of the tier as hexadecimal digits, the one used longest ago first. */
  oldestKeys(tier: number, most: number): string[] {
    return this.#tiers[tier]?.oldestKeys(most) ?? [];
  }

  snapshot(): readonly Uint32Array[] {
    return this.#tiers.map((tier) => tier.snapshot());
  }

  /** Into tiers without keys. */
  restore(state: readonly Uint32Array[]): void {
    state.forEach((words, tier) => {
      for (let at = 0; at < words.length; at += wordsPerKey) this.touch(tier, words, at);
    });
  }
}
