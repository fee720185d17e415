/** llm-d's concurrency detector as a filter: what each instance may have in flight, with room for bursts. */

import type { ConcurrencyCaps } from '../../admission/index.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { allBut, type CandidateFilter, type LeftOut } from './candidateFilter.ts';

/**
 * Keeps instances with less in flight than trunc(cap x (1 + headroom)), so that with this request there is no
 * more than that: requests, uncached prompt tokens without a first token, or both. (llm-d-router,
 * `saturationdetector/concurrency`.)
 */
export class Concurrency implements CandidateFilter {
  readonly #caps: ConcurrencyCaps;
  readonly #headroom: number;

  constructor(caps: ConcurrencyCaps, headroom: number) {
    this.#caps = caps;
    this.#headroom = headroom;
  }

  leavesOut({ candidates }: RoutingContext, open: readonly number[]): readonly LeftOut[] {
    const { kind, requests, tokens } = this.#caps;
    const kept = open.filter((at) => {
      const { inFlight, inFlightTokens } = candidates[at];
      const fewRequests = inFlight < Math.trunc(requests * (1 + this.#headroom));
      const fewTokens = inFlightTokens < Math.trunc(tokens * (1 + this.#headroom));
      return (kind === 'tokens' || fewRequests) && (kind === 'requests' || fewTokens);
    });
    return allBut(open, kept, 'concurrency');
  }
}
