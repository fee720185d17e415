/**
 * Requests whose found blocks are below HBM, where loads are overlapped: such a request computes from the
 * front while the blocks come from the back, and each step divides what is left anew
 * (planning/prefixMeeting.ts). When the front is where the first arrived block is, it goes on behind the
 * last.
 */

import { Entry } from '../manager/sequence.ts';
import {
  type FoundPrefix,
  isOurs,
  type MeetingPart,
  nextPart,
  passArrived,
} from '../planning/loadOrRecompute.ts';
import { type SchedulerCore, sequenceOf } from './core.ts';
import { Phase, type RequestState } from './request.ts';
import { SchedulerDecision } from './schedulerSink.ts';

/** All found blocks are in place: the request goes on as any other. */
export const HAS_MET = -1;
/** Blocks find no room now. */
export const NO_ROOM = -2;

/** A request that waits is looked at again this long after, at least. */
const LOOK_AGAIN_US = 1000;

/** A request that has just got its sequence, which holds what was found of it. */
export function beginMeeting(core: SchedulerCore, state: RequestState): void {
  state.isMeeting = true;
  state.computed = 0;
  state.sealed = 0;
  pass(core, state);
}

/** Whether the request can only wait for blocks now; those that are to be loaded are on their way then. */
export function onlyWaits(core: SchedulerCore, state: RequestState): boolean {
  pass(core, state);
  const part = divide(core, state);
  return (
    part.missing > 0 && part.to * core.port.blockTokens <= state.computed && startLoads(core, state, part)
  );
}

/** @returns tokens that the request computes in this step, 0 when it waits, HAS_MET or NO_ROOM */
export function tokensWhileMeeting(core: SchedulerCore, state: RequestState): number {
  pass(core, state);
  const part = divide(core, state);
  if (state.computed >= state.blocks * core.port.blockTokens) return hasMet(core, state);
  core.decide(SchedulerDecision.MEET, state, part.loadFrom - part.front, state.blocks - part.loadFrom);
  const end = Math.max(part.front, part.to) * core.port.blockTokens;
  const tokens = core.chunk(end - state.computed);
  if (!takeOver(core, state, part.front, core.blocksFor(state.computed + tokens))) return NO_ROOM;
  if (!startLoads(core, state, part) && tokens === 0) return NO_ROOM;
  const isRestPlaced = part.to === state.blocks && grantedTokens(core, state) === end;
  // All that was found and is left of it is computed in this step: what comes behind it need not wait.
  if (isRestPlaced && state.computed + tokens === end) return hasMet(core, state);
  const granted = Math.min(tokens, grantedTokens(core, state) - state.computed);
  if (granted > 0) return granted;
  core.lookAgainUs = Math.min(core.lookAgainUs, core.nowUs + Math.max(LOOK_AGAIN_US, part.plan.loadUs));
  return 0;
}

/** What was found of a request that waits is counted when it joins the batch. */
function hasMet(core: SchedulerCore, state: RequestState): typeof HAS_MET {
  state.isMeeting = false;
  if (state.phase === Phase.PREFILL) core.counters.hitBlocks += state.blocks - state.recomputed;
  return HAS_MET;
}

/** The front goes on behind blocks that are there. */
function pass(core: SchedulerCore, state: RequestState): void {
  const computed = passArrived(prefixOf(core, state), state.computed);
  if (computed === state.computed) return;
  state.computed = computed;
  state.sealed = computed / core.port.blockTokens;
}

function divide(core: SchedulerCore, state: RequestState): MeetingPart {
  const { port, pace, config } = core;
  const front = core.blocksFor(state.computed);
  return nextPart(
    prefixOf(core, state),
    state.computed,
    pace.estimate(config.maxBatchedTokens),
    port.loadEstimate(sequenceOf(state), front, state.blocks, core.nowUs),
  );
}

/** @returns false when the blocks that are to be loaded find no room */
function startLoads(core: SchedulerCore, state: RequestState, { loadFrom }: MeetingPart): boolean {
  const sequence = sequenceOf(state);
  for (let i = loadFrom; i < state.blocks; i++) {
    if (sequence.state[i] === Entry.MATCHED) {
      return core.port.loadFromBack(sequence, loadFrom, state.blocks, core.nowUs);
    }
  }
  return true;
}

/**
 * Blocks of [from, to) that have no slot of the request's own get one. Those that have one may stand anywhere
 * among them: after a loss, a block that waited for its slot is open behind others that are gone.
 * @returns false when some find no room
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

/** Tokens whose blocks are in place, from the beginning. */
function grantedTokens(core: SchedulerCore, state: RequestState): number {
  return core.port.placedBlocks(sequenceOf(state)) * core.port.blockTokens;
}

function prefixOf(core: SchedulerCore, state: RequestState): FoundPrefix {
  const { blockTokens, blockBytes } = core.port;
  return { sequence: sequenceOf(state), blocks: state.blocks, blockTokens, blockBytes };
}
