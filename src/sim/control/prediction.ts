/** Times that the router predicts from its own counts and from reports; what llm-d's latency rules go by. */

import type { InstanceSnapshot } from './instances.ts';
import type { RequestView } from './request.ts';

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

export interface LatencyTargets {
  /** Of a request that brings none; 0 for none. */
  readonly ttftUs: number;
  readonly tpotUs: number;
  readonly tokensPerS: number;
}

/** Target less prediction of both kinds; 0 where there is no target. */
export function headroomUs(
  { sloTargetUs }: RequestView,
  instance: InstanceSnapshot,
  uncachedTokens: number,
  { ttftUs, tpotUs, tokensPerS }: LatencyTargets,
): { readonly ttft: number; readonly tpot: number } {
  const target = sloTargetUs > 0 ? sloTargetUs : ttftUs;
  return {
    ttft: target === 0 ? 0 : target - predictedTtftUs(instance, uncachedTokens, tokensPerS),
    tpot: tpotUs === 0 ? 0 : tpotUs - predictedTpotUs(instance),
  };
}
