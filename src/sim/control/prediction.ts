/** Times that the router predicts from its own counts and from reports; what llm-d's latency rules go by. */

import type { InstanceSnapshot } from './instances.ts';

/** Prompt tokens a second of one instance, where nobody has measured: llm-d's figure. */
export const PREFILL_TOKENS_PER_S = 15_928;

/**
 * Time to the first token of a request with so many uncached tokens: they and the uncached tokens that the
 * router sent there and that had no first token yet, over the rate of prefill. Fresh.
 */
export function predictedTtftUs(
  instance: InstanceSnapshot,
  uncachedTokens: number,
  tokensPerS: number,
): number {
  return ((instance.inFlightTokens + uncachedTokens) * 1e6) / tokensPerS;
}

/** Time between its tokens: what the instance reported of recent requests, 0 before the first. */
export function predictedTpotUs(instance: InstanceSnapshot): number {
  return instance.recentTpotUs;
}
