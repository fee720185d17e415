/** llm-d's filter that keeps a prompt where its prefix is, while that is not too slow. */

import type { GoRandom } from '../../../random/index.ts';
import { predictedTtftUs } from '../../prediction.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { allBut, type CandidateFilter, type LeftOut } from './candidateFilter.ts';
import type { PrefixMatches } from './prefixMatches.ts';

export interface AffinityRules {
  /** Matched share of the prompt from which on an instance is sticky. */
  readonly minMatch: number;
  /** 0 for any. */
  readonly maxTtftPenaltyUs: number;
  /** Chance that a request is let go anywhere. */
  readonly exploration: number;
  readonly tokensPerS: number;
}

/**
 * Keeps the sticky instances, unless there are none, or the least time to a first token among them is more
 * than the penalty above the least among the others. That time is the uncached tokens in flight over the rate
 * of prefill; the request's own are not counted. Draws where the chance is above 0. (llm-d-router,
 * `prefix-cache-affinity-filter`, with its source `prefillThroughput`.)
 */
export class PrefixCacheAffinity implements CandidateFilter {
  readonly #rules: AffinityRules;
  readonly #matches: PrefixMatches;
  readonly #draws: GoRandom;

  constructor(rules: AffinityRules, matches: PrefixMatches, draws: GoRandom) {
    this.#rules = rules;
    this.#matches = matches;
    this.#draws = draws;
  }

  leavesOut(context: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    const { minMatch, maxTtftPenaltyUs, exploration } = this.#rules;
    if (open.length < 2) return [];
    if (exploration > 0 && this.#draws.float64() < exploration) return [];
    const { candidates } = context;
    const isSticky = (at: number): boolean =>
      this.#matches.share(context, candidates[at].instance) >= minMatch;
    const sticky = open.filter(isSticky);
    const others = open.filter((at) => !sticky.includes(at));
    if (sticky.length === 0 || others.length === 0) return [];
    const penaltyUs = this.#leastUs(context, sticky) - this.#leastUs(context, others);
    if (maxTtftPenaltyUs > 0 && penaltyUs > maxTtftPenaltyUs) return [];
    return allBut(open, sticky, 'prefix-cache-affinity');
  }

  #leastUs({ candidates }: RoutingContext, places: readonly number[]): number {
    return Math.min(...places.map((at) => predictedTtftUs(candidates[at], 0, this.#rules.tokensPerS)));
  }
}
