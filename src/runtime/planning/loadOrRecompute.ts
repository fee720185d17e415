/**
 * Load or recompute: of n blocks that lie below HBM, the first m are computed from the front while the others
 * are loaded from the back, until the two meet. Both run at the same time, so what counts is the later end:
 *
 *     minimise over m   max( C(m), S + (n - m) x bytes / B )       C(m) = a t + b t^2, t the tokens of m
 *     blocks, and c for each step that they take
 *
 * (Cake, arXiv 2410.03065.) C grows with m and the load shrinks, so the best m is where the two cross, or a
 * neighbour of it. The estimates change while a load runs, so the decision is made again with what is left:
 * `computedTokens` are behind, and neither they nor blocks that have arrived count any more.
 */

import { requireFinite, requireInteger, requirePositive } from '../errors.ts';

export interface ComputeEstimate {
  /** Microseconds a token costs whatever stands before it. */
  readonly usPerToken: number;
  /** Half of what a token costs for each token before it: b of a t + b t^2. */
  readonly usPerTokenSquared: number;
  /** What a step costs whatever it computes. Default 0. */
  readonly usPerStep?: number;
  /** Most tokens of a step. Default: all of them. */
  readonly stepTokens?: number;
}

export interface LoadEstimate {
  /** Until the first byte moves. */
  readonly startUs: number;
  readonly bandwidthBytesPerS: number;
}

export interface PrefixLeft {
  /** Blocks that are neither computed nor loaded, without a gap, before those that have arrived. */
  readonly blocks: number;
  readonly blockTokens: number;
  readonly blockBytes: number;
  /** Tokens before the first of them, whose KV is in HBM. */
  readonly computedTokens: number;
}

export interface LoadPlan {
  /** Blocks from the front that are computed. */
  readonly compute: number;
  /** Blocks from the back that are loaded. */
  readonly load: number;
  readonly computeUs: number;
  readonly loadUs: number;
  /** The later end of the two: what is waited for. */
  readonly endUs: number;
}

/**
 * The division with the earliest end; of several, the one that computes least.
 * @throws TKV_CONFIG naming the estimate that is no number of its range
 */
export function loadOrRecompute(left: PrefixLeft, compute: ComputeEstimate, load: LoadEstimate): LoadPlan {
  requireInteger('blocks', left.blocks, 0);
  requireInteger('blockTokens', left.blockTokens, 1);
  requireInteger('blockBytes', left.blockBytes, 1);
  requireInteger('computedTokens', left.computedTokens, 0);
  requireFinite('usPerToken', compute.usPerToken);
  requireFinite('usPerTokenSquared', compute.usPerTokenSquared);
  requireFinite('usPerStep', compute.usPerStep ?? 0);
  requirePositive('stepTokens', compute.stepTokens ?? 1);
  requireFinite('startUs', load.startUs);
  requirePositive('bandwidthBytesPerS', load.bandwidthBytesPerS);
  // The smallest m of which computing ends no earlier than the load.
  let low = 0;
  let high = left.blocks;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const { computeUs, loadUs } = planOf(middle, left, compute, load);
    if (computeUs >= loadUs) high = middle;
    else low = middle + 1;
  }
  const crossing = planOf(low, left, compute, load);
  const before = planOf(Math.max(0, low - 1), left, compute, load);
  return before.endUs <= crossing.endUs ? before : crossing;
}

/** What it takes to compute `m` blocks and load the others. */
export function planOf(m: number, left: PrefixLeft, compute: ComputeEstimate, load: LoadEstimate): LoadPlan {
  const { blocks, blockTokens, blockBytes, computedTokens } = left;
  const end = computedTokens + m * blockTokens;
  const { usPerToken, usPerTokenSquared, usPerStep = 0, stepTokens = Number.POSITIVE_INFINITY } = compute;
  const tokens = end - computedTokens;
  const steps = Math.ceil(Math.max(tokens / stepTokens, Math.min(tokens, 1)));
  const squares = squaresOf(computedTokens, end);
  const computeUs = usPerStep * steps + usPerToken * tokens + usPerTokenSquared * squares;
  const bytes = (blocks - m) * blockBytes;
  const loadUs = bytes === 0 ? 0 : load.startUs + (bytes * 1e6) / load.bandwidthBytesPerS;
  return { compute: m, load: blocks - m, computeUs, loadUs, endUs: Math.max(computeUs, loadUs) };
}

/** b of a t + b t^2 counts so often for tokens from `start` to `end`. */
export function squaresOf(start: number, end: number): number {
  return end * end - start * start;
}
