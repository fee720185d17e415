/** llm-d's filter that keeps the instances that are predicted to meet the request's targets. */

import type { GoRandom } from '../../../random/index.ts';
import { headroomUs, type LatencyTargets } from '../../prediction.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { allBut, type CandidateFilter, type LeftOut } from './candidateFilter.ts';
import type { PrefixMatches } from './prefixMatches.ts';

/**
 * Keeps the tier with head room of both kinds, or with the chance of exploration the other one, so that it
 * gets work again; where one of them is empty, all. Draws where neither is. (llm-d-router,
 * `slo-headroom-tier-filter`.)
 */
export class SloHeadroomTier implements CandidateFilter {
  readonly #targets: LatencyTargets;
  readonly #exploration: number;
  readonly #blockTokens: number;
  readonly #matches: PrefixMatches;
  readonly #draws: GoRandom;

  constructor(
    targets: LatencyTargets,
    exploration: number,
    blockTokens: number,
    matches: PrefixMatches,
    draws: GoRandom,
  ) {
    this.#targets = targets;
    this.#exploration = exploration;
    this.#blockTokens = blockTokens;
    this.#matches = matches;
    this.#draws = draws;
  }

  leavesOut(context: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    const { request, candidates } = context;
    const meets = open.filter((at) => {
      const cached = this.#matches.blocks(context, candidates[at].instance) * this.#blockTokens;
      const uncached = request.promptTokens - cached;
      const { ttft, tpot } = headroomUs(request, candidates[at], uncached, this.#targets);
      return ttft >= 0 && tpot >= 0;
    });
    if (meets.length === 0 || meets.length === open.length) return [];
    const explores = this.#draws.float64() < this.#exploration;
    const kept = explores ? open.filter((at) => !meets.includes(at)) : meets;
    return allBut(open, kept, 'slo-headroom-tier');
  }
}
