/**
 * Prefill from both ends, for requests whose found blocks lie below HBM, where loads are overlapped. Such a request
 * computes from the front while its blocks load from the back; each step divides the rest anew
 * (planning/loadOrRecompute.ts). When the front reaches the first block that has arrived, both ends have met and the
 * request goes on behind the last found block.
 */

import { Entry } from '../manager/sequence.ts';
import {
  type FoundPrefix,
  isOurs,
  partOf,
  passArrived,
  type TwoEndedPart,
} from '../planning/loadOrRecompute.ts';
import { type SchedulerCore, sequenceOf } from './core.ts';
import { Phase, type RequestState } from './request.ts';
import { SchedulerDecision } from './schedulerSink.ts';

/** All found blocks are in place: the request goes on as any other. */
export const ENDS_MET = -1;
/** The blocks do not fit now. */
export const NO_ROOM = -2;

/**
 * Microseconds until a waiting request is looked at again, at least: a load estimated at 0 must not end in a busy
 * loop.
 */
const LOOK_AGAIN_US = 1000;

/** Begins for a request that has just got its sequence, which holds the found blocks. */
export function beginTwoEnded(core: SchedulerCore, state: RequestState): void {
  state.isTwoEnded = true;
  state.computed = 0;
  state.sealed = 0;
  pass(core, state);
}

/** Whether the request can do nothing but wait for blocks; the loads it needs have been started then. */
export function onlyWaits(core: SchedulerCore, state: RequestState): boolean {
  pass(core, state);
  const part = divide(core, state);
  return (
    part.missing > 0 && part.to * core.port.blockTokens <= state.computed && startLoads(core, state, part)
  );
}

/** Tokens that the request computes in this step, 0 if it waits, ENDS_MET, or NO_ROOM. */
export function twoEndedTokens(core: SchedulerCore, state: RequestState): number {
  pass(core, state);
  const part = divide(core, state);
  if (state.computed >= state.blocks * core.port.blockTokens) return endsMet(core, state);
  core.decide(SchedulerDecision.MEET, state, part.loadFrom - part.front, state.blocks - part.loadFrom);
  const end = Math.max(part.front, part.to) * core.port.blockTokens;
  const tokens = core.chunk(end - state.computed);
  if (!takeOver(core, state, part.front, core.blocksFor(state.computed + tokens))) return NO_ROOM;
  if (!startLoads(core, state, part) && tokens === 0) return NO_ROOM;
  const isRestPlaced = part.to === state.blocks && grantedTokens(core, state) === end;
  // The rest of the found prefix is computed in this step, so the tokens behind it need not wait.
  if (isRestPlaced && state.computed + tokens === end) return endsMet(core, state);
  const granted = Math.min(tokens, grantedTokens(core, state) - state.computed);
  if (granted > 0) return granted;
  core.lookAgainUs = Math.min(core.lookAgainUs, core.nowUs + Math.max(LOOK_AGAIN_US, part.plan.loadUs));
  return 0;
}

/** Counts the found blocks of a waiting request when it joins the batch. */
function endsMet(core: SchedulerCore, state: RequestState): typeof ENDS_MET {
  state.isTwoEnded = false;
  if (state.phase === Phase.PREFILL) core.counters.hitBlocks += state.blocks - state.recomputed;
  return ENDS_MET;
}

/** Moves the front behind blocks that are in place. */
function pass(core: SchedulerCore, state: RequestState): void {
  const computed = passArrived(prefixOf(core, state), state.computed);
  if (computed === state.computed) return;
  state.computed = computed;
  state.sealed = computed / core.port.blockTokens;
}

function divide(core: SchedulerCore, state: RequestState): TwoEndedPart {
  const { port, pace, config } = core;
  const front = core.blocksFor(state.computed);
  return partOf(
    prefixOf(core, state),
    state.computed,
    pace.estimate(config.maxBatchedTokens),
    port.loadEstimate(sequenceOf(state), front, state.blocks, core.nowUs),
  );
}

/** @returns false if the blocks to be loaded do not fit */
function startLoads(core: SchedulerCore, state: RequestState, { loadFrom }: TwoEndedPart): boolean {
  const sequence = sequenceOf(state);
  for (let i = loadFrom; i < state.blocks; i++) {
    if (sequence.state[i] === Entry.MATCHED) {
      return core.port.loadFromBack(sequence, loadFrom, state.blocks, core.nowUs);
    }
  }
  return true;
}

/**
 * Gives the blocks of [from, to) that lack a slot of the request's own one. Blocks that have one may stand anywhere
 * among them: after a loss, a block that waited for its slot is open behind others that are gone.
 * @returns false if some do not fit
 */
function takeOver(core: SchedulerCore, state: RequestState, from: number, to: number): boolean {
  const sequence = sequenceOf(state);
  for (let first = from; first < to; ) {
    if (isOurs(sequence.state[first])) {
      first++;
      continue;
    }
    let end = first + 1;
    while (end < to && !isOurs(sequence.state[end])) end++;
    if (!core.port.recompute(sequence, first, end, core.nowUs)) return false;
    state.recomputed += end - first;
    core.counters.recomputedBlocks += end - first;
    first = end;
  }
  return true;
}

/** Leading tokens whose blocks are in place. */
function grantedTokens(core: SchedulerCore, state: RequestState): number {
  return core.port.placedBlocks(sequenceOf(state)) * core.port.blockTokens;
}

function prefixOf(core: SchedulerCore, state: RequestState): FoundPrefix {
  const { blockTokens, blockBytes } = core.port;
  return { sequence: sequenceOf(state), blocks: state.blocks, blockTokens, blockBytes };
}
