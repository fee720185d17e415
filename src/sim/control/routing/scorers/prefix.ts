/** Scorers that go by where the prompt's blocks are believed to be. */

import { wordsPerKey } from '../../../../runtime/keys/index.ts';
import { KeyDirectory, KeyLru, LeadingBlocks } from '../../kvView/index.ts';
import type { PlainState } from '../../policy.ts';
import type { RequestView } from '../../request.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { minMax, type Scorer } from './scorer.ts';

/**
 * Matched leading blocks over all blocks of the prompt, by the router's own memory: of each instance the
 * `blocks` keys that it used last for prompts it sent there. 0 for a prompt without a full block.
 */
export class PrefixAffinity implements Scorer {
  readonly name: string = 'prefix-affinity';
  readonly readsCaches: boolean = false;
  readonly #limitBlocks: number;
  readonly #byInstance = new Map<number, KeyLru>();
  readonly #directory: KeyDirectory = new KeyDirectory();
  readonly #leading: LeadingBlocks = new LeadingBlocks([{ directory: this.#directory, tier: 0 }]);

  constructor(limitBlocks: number) {
    this.#limitBlocks = limitBlocks;
  }

  score({ request, candidates }: RoutingContext, out: Float64Array): void {
    for (let i = 0; i < candidates.length; i++) {
      out[i] =
        request.promptBlocks === 0
          ? 0
          : this.matchedBlocks(request, candidates[i].instance) / request.promptBlocks;
    }
  }

  routed({ request }: RoutingContext, instance: number): void {
    let lru = this.#byInstance.get(instance);
    if (lru === undefined) this.#byInstance.set(instance, (lru = new KeyLru()));
    const words = request.keys.words;
    for (let block = 0; block < request.promptBlocks; block++) {
      lru.touch(words, block * wordsPerKey);
      this.#directory.add(instance, words, block * wordsPerKey);
      if (lru.size <= this.#limitBlocks) continue;
      this.#directory.remove(instance, lru.words, lru.oldest() * wordsPerKey);
      lru.removeSlot(lru.oldest());
    }
  }

  removed(instance: number): void {
    this.#byInstance.delete(instance);
    this.#directory.removeInstance(instance);
  }

  /** Keys that it remembers of the instance. */
  blocksOf(instance: number): number {
    return this.#byInstance.get(instance)?.size ?? 0;
  }

  /** Leading blocks of the prompt that it remembers of the instance. */
  matchedBlocks(request: RequestView, instance: number): number {
    return this.#leading.blocks(request, instance);
  }

  snapshot(): PlainState {
    return [...this.#byInstance].map(([instance, lru]) => ({ instance, keys: lru.snapshot() }));
  }

  restore(state: PlainState): void {
    this.#byInstance.clear();
    this.#directory.clear();
    // the state is what `snapshot` made
    for (const { instance, keys } of state as unknown as readonly { instance: number; keys: Uint32Array }[]) {
      const lru = new KeyLru();
      lru.restore(keys);
      for (let at = 0; at < keys.length; at += wordsPerKey) this.#directory.add(instance, keys, at);
      this.#byInstance.set(instance, lru);
    }
  }
}

const LONG_TOKENS = 8192;

/**
 * min(1, matched tokens / 8192) squared, by the same memory: the length term of llm-d's prefix scorer, which
 * with its weight w is w x this + (1 - w) x `prefix-affinity`.
 */
export class PrefixLength extends PrefixAffinity {
  override readonly name: string = 'prefix-length';
  readonly #blockTokens: number;

  constructor(limitBlocks: number, blockTokens: number) {
    super(limitBlocks);
    this.#blockTokens = blockTokens;
  }

  override score({ request, candidates }: RoutingContext, out: Float64Array): void {
    for (let i = 0; i < candidates.length; i++) {
      const tokens = this.matchedBlocks(request, candidates[i].instance) * this.#blockTokens;
      const share = Math.min(1, tokens / LONG_TOKENS);
      out[i] = share * share;
    }
  }
}

/** Leading blocks in HBM as the instances told it, scaled to [0, 1]; all equal, 1. */
export const precisePrefix = (): Scorer => ({
  name: 'precise-prefix-cache',
  readsCaches: true,
  score: ({ request, candidates, router }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      out[i] = router.observedKv.hbmBlocks(request, candidates[i].instance);
    }
    minMax(out, candidates.length, false);
  },
  snapshot: () => null,
  restore: () => {},
});

/** Weight of a block by its tier, HBM first; tiers behind the last weight as much as it. */
const TIER_WEIGHTS = [1, 0.8, 0.5, 0.25];

/**
 * Leading blocks in any tier as the instances told it, weighted by tier, over the blocks of the prompt; 0 for
 * a prompt without a full block.
 */
export const tieredPrefix = (): Scorer => ({
  name: 'tiered-prefix',
  readsCaches: true,
  score: ({ request, candidates, router }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      let weighted = 0;
      const { byTier } = router.observedKv.place(request, candidates[i].instance);
      byTier.forEach((blocks, tier) => {
        weighted += blocks * TIER_WEIGHTS[Math.min(tier, TIER_WEIGHTS.length - 1)];
      });
      out[i] = request.promptBlocks === 0 ? 0 : weighted / request.promptBlocks;
    }
  },
  snapshot: () => null,
  restore: () => {},
});

/** Leading blocks by the router's shadow over the blocks of the prompt; 0 without a shadow. */
export const shadowPrefix = (): Scorer => ({
  name: 'shadow-prefix',
  readsCaches: false,
  score: ({ request, candidates, router }, out) => {
    for (let i = 0; i < candidates.length; i++) {
      const blocks = router.shadowKv?.place(request, candidates[i].instance).blocks ?? 0;
      out[i] = request.promptBlocks === 0 ? 0 : blocks / request.promptBlocks;
    }
  },
  snapshot: () => null,
  restore: () => {},
});
