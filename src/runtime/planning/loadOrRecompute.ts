/**
 * Load or recompute: of n blocks that lie below HBM, the first m are computed from the front while the others are
 * loaded from the back, until both meet. They run at the same time, so the later end counts:
 *
 *     minimise over m   max( C(m), S + (n - m) x bytes / B + g x C(m) )
 *
 *     C(m) = a t + b t^2, t the tokens of m blocks, and c for each step that they take
 *
 * (Cake, arXiv 2410.03065, with g = 0.) g is above 0, up to 1, where loads wait for kernels, as on a device with one
 * queue for both; then loading all and computing all differ little. The estimates change while a load runs, so the
 * decision is repeated for what is left: blocks computed or arrived no longer count.
 */

import { requireFinite, requireInteger, requirePositive } from '../errors.ts';
import * as is from '../kinds.ts';
import { Entry, type Sequence } from '../manager/sequence.ts';
import { checkInputs } from '../options.ts';

export interface ComputeEstimate {
  /** Microseconds that each token costs, wherever it stands. */
  readonly usPerToken: number;
  /** Half of what a token costs for each token before it, in microseconds: b of a t + b t^2. */
  readonly usPerTokenSquared: number;
  /** Microseconds that each step costs, whatever it computes. Default 0. */
  readonly usPerStep?: number;
  /** Most tokens of a step. Default: all of them. */
  readonly stepTokens?: number;
}

export interface LoadEstimate {
  /** Microseconds until the first byte moves. */
  readonly startUs: number;
  readonly bandwidthBytesPerS: number;
  /** Share of the computing that delays the load: 0 (default) where they run side by side, 1 where it waits. */
  readonly behindCompute?: number;
}

export interface PrefixLeft {
  /** Blocks that are neither computed nor loaded, without a gap, before the ones that have arrived. */
  readonly blocks: number;
  readonly blockTokens: number;
  readonly blockBytes: number;
  /** Tokens before the first of them, whose KV is in HBM. */
  readonly computedTokens: number;
}

interface LoadPlan {
  /** Blocks from the front that are computed. */
  readonly compute: number;
  /** Blocks from the back that are loaded. */
  readonly load: number;
  readonly computeUs: number;
  readonly loadUs: number;
  /** The later end of the two, in microseconds from now. */
  readonly endUs: number;
}

/**
 * Divides a prefix between loading and computing: the division with the earliest end; among equals, the one that computes least.
 * @throws TKV_CONFIG naming the estimate that is out of range
 */
export function loadOrRecompute(left: PrefixLeft, compute: ComputeEstimate, load: LoadEstimate): LoadPlan {
  checkInputs({ left, compute, load }, { left: is.object(), compute: is.object(), load: is.object() });
  return fastestMixture(left, compute, load);
}

function fastestMixture(left: PrefixLeft, compute: ComputeEstimate, load: LoadEstimate): LoadPlan {
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

/** The cost of computing `m` blocks and loading the others. */
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

/** Factor of b in the cost a t + b t^2 of the tokens from `start` to `end`. */
export function squaresOf(start: number, end: number): number {
  return end * end - start * start;
}

// A found prefix that is computed from the front and loaded from the back until both meet: its next part, by what is
// in place now and by current estimates.
//
//     computed | ours: open, to be computed | away: below HBM or on its way | there: arrived from the back
//              ^ front                      ^ loadFrom
//
// Blocks that lay in HBM from the beginning stand anywhere in it; when the front reaches one, it goes on behind it. A
// block whose load has failed is computed.

export interface FoundPrefix {
  readonly sequence: Sequence;
  /** Blocks that were found; blocks behind them are computed in any case. */
  readonly blocks: number;
  readonly blockTokens: number;
  readonly blockBytes: number;
}

export interface TwoEndedPart {
  /** The first block that is not computed. */
  readonly front: number;
  /** End of the blocks computed now: the next block that is in place, or `loadFrom`. */
  readonly to: number;
  /** Blocks from here on are loaded. */
  readonly loadFrom: number;
  /** Blocks that are neither computed nor there. 0: both ends have met. */
  readonly missing: number;
  readonly plan: LoadPlan;
}

const nothing: LoadPlan = { compute: 0, load: 0, computeUs: 0, loadUs: 0, endUs: 0 };

/** Tokens that are computed or there without a gap, from `computedTokens` on. */
export function passArrived({ sequence, blocks, blockTokens }: FoundPrefix, computedTokens: number): number {
  if (computedTokens % blockTokens !== 0) return computedTokens;
  let at = computedTokens / blockTokens;
  while (at < blocks && sequence.state[at] === Entry.READY) at++;
  return at * blockTokens;
}

/** Whether the block has its slot and waits only for the engine's work. */
export function isOurs(state: number): boolean {
  return state === Entry.OPEN || state === Entry.WAITING;
}

/** Whether the block is in place or being sealed: it is computed already and not written again. */
function isThere(state: number): boolean {
  return state === Entry.READY || state === Entry.SEALING;
}

/**
 * @param compute undefined before the first estimate: everything that can be loaded is loaded
 * @param load undefined if no block is below HBM or on its way: all are computed
 */
export function nextPart(
  prefix: FoundPrefix,
  computedTokens: number,
  compute: ComputeEstimate | undefined,
  load: LoadEstimate | undefined,
): TwoEndedPart {
  checkInputs(
    { prefix, computedTokens },
    { prefix: is.fields({ blocks: is.number(), blockTokens: is.number() }), computedTokens: is.number() },
  );
  return partOf(prefix, computedTokens, compute, load);
}

/** Like `nextPart`, for schedulers: each step asks for each request. */
export function partOf(
  prefix: FoundPrefix,
  computedTokens: number,
  compute: ComputeEstimate | undefined,
  load: LoadEstimate | undefined,
): TwoEndedPart {
  const { sequence, blocks, blockTokens, blockBytes } = prefix;
  const front = Math.ceil(computedTokens / blockTokens);
  let missing = 0;
  for (let i = front; i < blocks; i++) if (sequence.state[i] !== Entry.READY) missing++;
  if (missing === 0) return { front, to: front, loadFrom: blocks, missing, plan: nothing };
  const left: PrefixLeft = { blocks: missing, blockTokens, blockBytes, computedTokens };
  const plan = divided(left, compute, load);
  const wanted = Math.max(plan.compute, computedInAnyCase(prefix, front));
  let loadFrom = front;
  for (let counted = 0; counted < wanted; loadFrom++) {
    if (sequence.state[loadFrom] !== Entry.READY) counted++;
  }
  let to = front;
  while (to < loadFrom && !isThere(sequence.state[to])) to++;
  return { front, to, loadFrom, missing, plan };
}

/**
 * Share of the loading time within which computing must end to be chosen. Estimates are not more exact than that,
 * kernels take time that others could use, and loads without kernels measure their link best. A mixture must likewise
 * beat the better of the two alone: it takes more steps, and a load may wait for a kernel.
 */
const WORTH_COMPUTING = 0.8;

function divided(
  left: PrefixLeft,
  compute: ComputeEstimate | undefined,
  load: LoadEstimate | undefined,
): LoadPlan {
  const free: ComputeEstimate = { usPerToken: 0, usPerTokenSquared: 0 };
  if (load === undefined) {
    return planOf(left.blocks, left, compute ?? free, { startUs: 0, bandwidthBytesPerS: 1 });
  }
  const loads = planOf(0, left, compute ?? free, load);
  if (compute === undefined) return loads;
  const computes = planOf(left.blocks, left, compute, load);
  const alone = computes.endUs < loads.endUs * WORTH_COMPUTING ? computes : loads;
  const mixed = fastestMixture(left, compute, load);
  return mixed.endUs < alone.endUs * WORTH_COMPUTING ? mixed : alone;
}

/** Leading blocks that have their slot already, or that no load can bring. */
function computedInAnyCase({ sequence, blocks }: FoundPrefix, front: number): number {
  let i = front;
  while (i < blocks) {
    const state = sequence.state[i];
    if (!isOurs(state) && state !== Entry.NONE && state !== Entry.FAILED) break;
    i++;
  }
  return i - front;
}

// Whether to load or recompute blocks of one request below HBM while others wait for the same engine, link and room.
// What counts is how much later requests begin to be answered, this one and the waiting ones:
//
//     computed   the engine is busy for C: the request, each that waits for room or a seat, and each that loads and
//                then needs the engine are later by C
//     loaded     the request waits L, the queue of the link included, and lies in HBM meanwhile: requests that
//                wait for room wait longer by its share of it, and later loads wait for its bytes
//
// Requests to come are unknown; the present queues stand for them. Requests that run have begun.

export interface LoadChoice {
  /** C: microseconds that the engine needs to compute the blocks, alone. */
  readonly computeUs: number;
  /** L: microseconds until all blocks are there. */
  readonly loadUs: number;
  /** Part of L during which the links carry these blocks. */
  readonly linkUs: number;
  /** Microseconds that pass anyway before the request can run. */
  readonly slackUs: number;
  /** Share of HBM that the request takes while it loads. */
  readonly roomShare: number;
  /** Requests that wait for room or a seat, and that load. */
  readonly waiting: number;
  readonly loading: number;
}

export function isLoadBetter(choice: LoadChoice): boolean {
  const { computeUs, loadUs, linkUs, slackUs, roomShare, waiting, loading } = choice;
  const ownUs = Math.max(0, loadUs - slackUs);
  const loadedUs = ownUs * (1 + waiting * roomShare) + linkUs * loading;
  const computedUs = computeUs * (1 + waiting + loading);
  return loadedUs <= computedUs;
}
