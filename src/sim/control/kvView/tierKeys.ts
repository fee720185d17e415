/** The keys that are believed to lie in each tier of an instance, and where a prompt's leading blocks are. */

import { wordsPerKey } from '../../../runtime/keys/index.ts';
import type { RequestView } from '../request.ts';
import type { PrefixPlace } from '../routerState.ts';
import { KeyLru } from './keyLru.ts';

export class TierKeys {
  /** By tier, HBM first. */
  readonly tiers: readonly KeyLru[];
  readonly capacityBlocks: readonly number[];

  constructor(capacityBlocks: readonly number[]) {
    this.capacityBlocks = capacityBlocks;
    this.tiers = capacityBlocks.map(() => new KeyLru());
  }

  /** The fastest tier that holds the key, or -1. */
  tierOf(words: Uint32Array, at: number): number {
    for (let tier = 0; tier < this.tiers.length; tier++) if (this.tiers[tier].has(words, at)) return tier;
    return -1;
  }

  hbmBlocks(request: RequestView): number {
    const hbm = this.tiers[0];
    if (hbm.size === 0) return 0;
    const { promptBlocks } = request;
    const words = request.keys.words;
    let blocks = 0;
    while (blocks < promptBlocks && hbm.has(words, blocks * wordsPerKey)) blocks++;
    return blocks;
  }

  place(request: RequestView): PrefixPlace {
    const byTier = this.tiers.map(() => 0);
    const words = request.keys.words;
    let blocks = 0;
    for (; blocks < request.promptBlocks; blocks++) {
      const tier = this.tierOf(words, blocks * wordsPerKey);
      if (tier === -1) break;
      byTier[tier]++;
    }
    return { blocks, byTier };
  }

  apply(tier: number, stored: boolean, words: Uint32Array, at: number): void {
    if (stored) this.tiers[tier].touch(words, at);
    else this.tiers[tier].remove(words, at);
  }

  snapshot(): readonly Uint32Array[] {
    return this.tiers.map((tier) => tier.snapshot());
  }

  restore(state: readonly Uint32Array[]): void {
    state.forEach((words, tier) => {
      this.tiers[tier].restore(words);
    });
  }
}
