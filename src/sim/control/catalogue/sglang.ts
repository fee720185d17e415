/**
 * Rules of SGLang's gateway. Its tree of characters is here a memory of block keys, and the load of a worker
 * is what the router has in flight there.
 */

import type { PolicyEntry } from '../registry.ts';
import { HashRing, keyHash } from '../routing/memory.ts';
import type { RoutingPolicy } from '../routing/routingPolicy.ts';
import { Picker, type RoutingContext } from '../routing/routingPolicy.ts';
import {
  inFlightOf,
  memoryRules,
  numberRule,
  pickerOf,
  RememberingRule,
  ScoredRule,
  type Taken,
  tiesRule,
  wholeRule,
} from './rule.ts';

interface CacheAwareRules {
  readonly absolute: number;
  readonly relative: number;
  readonly matchShare: number;
  /** Where a prompt goes that matches nowhere. */
  readonly cold: 'least-load' | 'smallest-tree';
}

/**
 * Where max - min > `absolute` and max > `relative` x min in flight, the least loaded. Else the best match,
 * if it is more than `matchShare` of the prompt. Else the least loaded, or the one with the fewest remembered
 * blocks. All prompts are remembered, whichever way they went.
 */
class SglangCacheAware extends RememberingRule {
  override readonly name: string = 'sglang-cache-aware';
  readonly #rules: CacheAwareRules;

  constructor(rules: CacheAwareRules, picker: Picker, memoryBlocks: number) {
    super(picker, memoryBlocks);
    this.#rules = rules;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { request, candidates } = context;
    const { absolute, relative, matchShare, cold } = this.#rules;
    const loads = candidates.map(inFlightOf);
    const most = Math.max(...loads);
    const least = Math.min(...loads);
    if (most - least > absolute && most > relative * least) {
      return { index: this.least(candidates, scores, inFlightOf), reason: 'unbalanced' };
    }
    const matches = this.matches(context);
    if (Math.max(...matches) > matchShare * request.promptBlocks) {
      const share = (_: unknown, i: number): number => -matches[i] / request.promptBlocks;
      return { index: this.least(candidates, scores, share), reason: 'best match' };
    }
    if (cold === 'least-load')
      return { index: this.least(candidates, scores, inFlightOf), reason: 'no match' };
    const size = ({ instance }: { instance: number }): number => this.memory.blocksOf(instance);
    return { index: this.least(candidates, scores, size), reason: 'no match' };
  }
}

/**
 * The least uncached tokens x (in flight + 1); of equal ones the fewest in flight, then the fewest tokens.
 */
class SglangLmetric extends RememberingRule {
  override readonly name: string = 'sglang-lmetric';
  readonly #blockTokens: number;

  constructor(picker: Picker, memoryBlocks: number, blockTokens: number) {
    super(picker, memoryBlocks);
    this.#blockTokens = blockTokens;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { request, candidates } = context;
    const work = this.matches(context).map((blocks) => request.promptTokens - blocks * this.#blockTokens);
    let best = 0;
    for (let i = 0; i < candidates.length; i++) {
      scores[i] = -work[i] * (candidates[i].inFlight + 1);
      const ahead =
        scores[i] - scores[best] ||
        candidates[best].inFlight - candidates[i].inFlight ||
        work[best] - work[i];
      if (ahead > 0) best = i;
    }
    return { index: best, reason: 'least work' };
  }
}

/**
 * The owner, on a ring of instances, of the hash of the first `prefixTokens` tokens, if it has no more than
 * `loadFactor` x (all in flight + 1) / n in flight; else the least loaded. A prompt without a full block goes
 * to the least loaded.
 */
class SglangPrefixHash extends ScoredRule {
  override readonly name: string = 'sglang-prefix-hash';
  readonly #prefixBlocks: number;
  readonly #loadFactor: number;
  readonly #ring: HashRing = new HashRing();

  constructor(picker: Picker, prefixBlocks: number, loadFactor: number) {
    super(picker);
    this.#prefixBlocks = Math.max(1, prefixBlocks);
    this.#loadFactor = loadFactor;
  }

  protected override take({ request, candidates }: RoutingContext, scores: Float64Array): Taken {
    const blocks = Math.min(this.#prefixBlocks, request.promptBlocks);
    if (blocks > 0) {
      const owner = this.#ring.owner(
        keyHash(request.keys.words, blocks - 1),
        candidates.map(({ instance }) => instance),
      );
      const all = candidates.reduce((sum, { inFlight }) => sum + inFlight, 0);
      const bound = (this.#loadFactor * (all + 1)) / candidates.length;
      const fits = candidates.some(({ instance, inFlight }) => instance === owner && inFlight <= bound);
      if (fits) {
        const index = this.least(candidates, scores, inFlightOf, ({ instance }) => instance === owner);
        return { index, reason: 'owner of the prefix' };
      }
    }
    return { index: this.least(candidates, scores, inFlightOf), reason: 'least loaded' };
  }
}

/** Routing rules of SGLang. */
export const sglangRules: readonly PolicyEntry<RoutingPolicy>[] = [
  {
    name: 'sglang-cache-aware',
    about: 'SGLang: the best match while loads are even, else the least loaded',
    readsKeys: true,
    readsReports: false,
    parameters: {
      absolute: wholeRule(64),
      relative: numberRule(1.5, { min: 1 }),
      matchShare: numberRule(0.3, { min: 0, max: 1 }),
      cold: { kind: 'choice', default: 'least-load', names: ['least-load', 'smallest-tree'] },
      ...memoryRules,
    },
    make: (p, world) => {
      const cold = p.text('cold') === 'smallest-tree' ? 'smallest-tree' : 'least-load';
      const rules = {
        absolute: p.number('absolute'),
        relative: p.number('relative'),
        matchShare: p.number('matchShare'),
        cold,
      } as const;
      return new SglangCacheAware(rules, pickerOf(p, world), p.number('memoryBlocks'));
    },
  },
  {
    name: 'sglang-lmetric',
    about: 'SGLang: the least uncached tokens x (in flight + 1)',
    readsKeys: true,
    readsReports: false,
    parameters: { memoryBlocks: memoryRules.memoryBlocks },
    make: (p, world) => new SglangLmetric(new Picker(null), p.number('memoryBlocks'), world.blockTokens),
  },
  {
    name: 'sglang-prefix-hash',
    about: 'SGLang: the owner of the first tokens on a ring, while it is not overloaded',
    readsKeys: true,
    readsReports: false,
    parameters: { prefixTokens: wholeRule(256, 1), loadFactor: numberRule(1.25, { min: 1 }), ties: tiesRule },
    make: (p, world) =>
      new SglangPrefixHash(
        pickerOf(p, world),
        Math.floor(p.number('prefixTokens') / world.blockTokens),
        p.number('loadFactor'),
      ),
  },
];
