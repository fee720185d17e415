/**
 * A found prefix that is computed from the front and loaded from the back, until the two meet: what of it is
 * done next, by what is in place now and by estimates as they are now.
 *
 *     computed | ours: open, to be computed | away: below HBM or on its way | there: arrived from the back
 *              ^ front                      ^ loadFrom
 *
 * Blocks that lay in HBM from the beginning stand anywhere in it; when the front reaches one, it goes on
 * behind it. A block whose load has failed is computed.
 */

import { Entry, type Sequence } from '../manager/sequences/blockTable/sequence.ts';
import {
  type ComputeEstimate,
  type LoadEstimate,
  type LoadPlan,
  loadOrRecompute,
  type PrefixLeft,
  planOf,
} from './loadOrRecompute.ts';

export interface FoundPrefix {
  readonly sequence: Sequence;
  /** Blocks that were found; what lies behind them is computed in any case. */
  readonly blocks: number;
  readonly blockTokens: number;
  readonly blockBytes: number;
}

export interface MeetingPart {
  /** The first block that is not computed. */
  readonly front: number;
  /** Behind the last block that is computed now: up to the next one that is in place, or to `loadFrom`. */
  readonly to: number;
  /** Blocks from here on are loaded. */
  readonly loadFrom: number;
  /** Blocks that are neither computed nor there. 0: front and back have met. */
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

/** Whether the block has its slot, and nothing but the engine's work in it. */
export function isOurs(state: number): boolean {
  return state === Entry.OPEN || state === Entry.WAITING;
}

/** Or about to be: it was computed already, and is not written again. */
function isThere(state: number): boolean {
  return state === Entry.READY || state === Entry.SEALING;
}

/**
 * @param compute undefined while nothing is known of it: what can be loaded is loaded
 * @param load undefined when no block is below HBM or on its way: all are computed
 */
export function nextPart(
  prefix: FoundPrefix,
  computedTokens: number,
  compute: ComputeEstimate | undefined,
  load: LoadEstimate | undefined,
): MeetingPart {
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
 * Computing what could be loaded has to end so much sooner: estimates are no better, kernels take what others
 * could use, and loads that go alone say best how fast their link is. So has a mixture, sooner than the
 * better of the two alone: where front and back meet there are more steps, and a load may wait for a kernel.
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
  const mixed = loadOrRecompute(left, compute, load);
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
