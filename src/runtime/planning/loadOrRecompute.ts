/**
 * Load or recompute: of n blocks that lie below HBM, the first m are computed from the front while the others
 * are loaded from the back, until the two meet. Both run at the same time, so what counts is the later end:
 *
 *     minimise over m   max( C(m), S + (n - m) x bytes / B + g x C(m) )
 *
 *     C(m) = a t + b t^2, t the tokens of m blocks, and c for each step that they take
 *
 * (Cake, arXiv 2410.03065.) g is 0 there. Where loads wait for kernels, as on a device with one queue for
 * both, it is up to 1, and then there is little between loading all and computing all. The estimates change
 * while a load runs, so the decision is made again with what is left: `computedTokens` are behind, and
 * neither they nor blocks that have arrived count any more.
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
  /** By how much of what is computed meanwhile the load is later: 0 (default) to 1, where it waits for it. */
  readonly behindCompute?: number;
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
  requireFinite('behindCompute', load.behindCompute ?? 0);
  let best = 0;
  let bestUs = Number.POSITIVE_INFINITY;
  for (let m = 0; m <= left.blocks; m++) {
    const computeUs = computeTime(m, left, compute);
    if (computeUs >= bestUs) break; // and so is every larger m
    const endUs = Math.max(computeUs, loadTime(m, left, load, computeUs));
    if (endUs >= bestUs) continue;
    best = m;
    bestUs = endUs;
  }
  return planOf(best, left, compute, load);
}

/** What it takes to compute `m` blocks and load the others. */
export function planOf(m: number, left: PrefixLeft, compute: ComputeEstimate, load: LoadEstimate): LoadPlan {
  const computeUs = computeTime(m, left, compute);
  const loadUs = loadTime(m, left, load, computeUs);
  return { compute: m, load: left.blocks - m, computeUs, loadUs, endUs: Math.max(computeUs, loadUs) };
}

function computeTime(m: number, { blockTokens, computedTokens }: PrefixLeft, by: ComputeEstimate): number {
  const { usPerToken, usPerTokenSquared, usPerStep = 0, stepTokens = Number.POSITIVE_INFINITY } = by;
  const tokens = m * blockTokens;
  const steps = Math.ceil(Math.max(tokens / stepTokens, Math.min(tokens, 1)));
  const squares = squaresOf(computedTokens, computedTokens + tokens);
  return usPerStep * steps + usPerToken * tokens + usPerTokenSquared * squares;
}

function loadTime(
  m: number,
  { blocks, blockBytes }: PrefixLeft,
  over: LoadEstimate,
  computeUs: number,
): number {
  if (m === blocks) return 0;
  const { startUs, bandwidthBytesPerS, behindCompute = 0 } = over;
  return startUs + ((blocks - m) * blockBytes * 1e6) / bandwidthBytesPerS + behindCompute * computeUs;
}

/** b of a t + b t^2 counts so often for tokens from `start` to `end`. */
export function squaresOf(start: number, end: number): number {
  return end * end - start * start;
}
