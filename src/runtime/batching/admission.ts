/**
 * The second half of a step: requests join the batch, strictly from the head of the waiting queue, while seats and
 * budget last. A request's cached blocks, in any tier, are matched and pinned first; the rest is sized after them.
 *
 * A request that does not fit holds up everything behind it. Three kinds let later requests pass: a request whose
 * blocks are on their way (it waits beside the queue, unless it was preempted before), a request whose next block
 * the batch is computing, and one that its engine cannot run beside the others.
 */

import { type BlockKeys, wordsPerKey } from '../keys/keyChain.ts';
import { type SchedulerCore, sequenceOf } from './core.ts';
import { yieldHeldBlocks } from './preemption.ts';
import { Phase, type RequestState, type ServingRequest } from './request.ts';
import { SchedulerDecision } from './schedulerSink.ts';
import { beginTwoEnded, ENDS_MET, NO_ROOM, onlyWaits, twoEndedTokens } from './twoEndedPrefill.ts';

/** Blocks of generated tokens that a request's table has room for from the beginning: tables seldom grow then. */
const AHEAD_BLOCKS = 64;

/** Puts requests whose loads have all ended, well or not, back in the queue at their old place. */
export function returnLoaded<R extends ServingRequest>(core: SchedulerCore<R>): void {
  for (const state of core.holders) {
    if (state.phase !== Phase.LOADING) continue;
    if (state.isTwoEnded ? onlyWaits(core, state) : core.isUnsettled(state)) continue;
    core.keepPlaced(state);
    state.phase = Phase.WAITING;
    core.loadingCount--;
    core.waiting.putBack(state);
  }
}

/** Admits requests with the budget that the running ones left. */
export function admitWaiting<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { batch, waiting, config, plan } = core;
  const hasSeat = (): boolean => core.left > 0 && batch.size + core.loadingCount < config.maxSequences;
  const holdUp = (): void => {
    plan.heldUp = waiting.head()?.request as R | undefined;
  };
  if (plan.preempted.length > 0 && batch.size > 0) {
    holdUp();
    return;
  }
  const aside: RequestState<R>[] = [];
  while (hasSeat()) {
    const state = nextWaiting(core);
    if (state === null || aside.length === config.maxSequences || holdsBackFor(core, state)) break;
    const mayJoin = state.sequence !== null || (core.port.mayJoin?.(state.request.keys) ?? true);
    if (!mayJoin || (state.sequence === null && isComputedByAnother(core, state))) {
      waiting.setAside(state);
      aside.push(state);
      continue;
    }
    if (state.sequence === null && !open(core, state)) {
      if (batch.size === 0 && yieldHeldBlocks(core, state)) continue;
      holdUp();
      break;
    }
    const part = state.isTwoEnded ? twoEndedTokens(core, state) : ENDS_MET;
    if (part === NO_ROOM) {
      if (batch.size === 0 && yieldHeldBlocks(core, state)) continue;
      core.port.cancel(sequenceOf(state), core.nowUs);
      core.forgetSequence(state);
      holdUp();
      break;
    }
    if (part > 0) {
      join(core, state, part);
      continue;
    }
    if (part === 0 || core.isUnsettled(state)) {
      defer(core, state);
      continue;
    }
    const tokens = core.chunk(state.known - state.computed);
    if (!core.allocate(state, state.computed + tokens)) {
      if (batch.size === 0 && yieldHeldBlocks(core, state)) continue;
      holdUp();
      break;
    }
    if (core.isUnsettled(state)) {
      defer(core, state);
      continue;
    }
    join(core, state, tokens);
  }
  for (const state of aside) waiting.comeBack(state);
  if (core.opensLeft === 0 && hasSeat()) holdUp();
}

/** The next request; where no more may take blocks in this step, the first request that has its blocks. */
function nextWaiting<R extends ServingRequest>(core: SchedulerCore<R>): RequestState<R> | null {
  const { waiting, holders } = core;
  if (core.opensLeft > 0) return waiting.head() as RequestState<R> | null;
  let first: RequestState<R> | null = null;
  for (const holder of holders) {
    const isFirst = first === null || waiting.isBefore(holder, first);
    if (holder.phase === Phase.WAITING && isFirst) first = holder;
  }
  return first;
}

/** Whether a request of the batch computes the first block that this one misses. */
function isComputedByAnother<R extends ServingRequest>(
  core: SchedulerCore<R>,
  state: RequestState<R>,
): boolean {
  const { batch, config } = core;
  if (config.sharedPrefixes !== 'awaited' || config.publish !== 'whenComputed') return false;
  if (batch.prefills === 0) return false;
  const { keys } = state.request;
  const most = findable(core, state);
  const matched = core.port.matchLength(keys, most);
  if (matched === most) return false;
  for (let seat = batch.firstPrefill(); seat !== -1; seat = batch.nextAlike(seat)) {
    const other = batch.state(seat);
    const computes = Math.floor(other.known / core.port.blockTokens);
    if (matched < computes && isSameKey(keys, other.request.keys, matched)) return true;
  }
  return false;
}

function isSameKey(a: BlockKeys, b: BlockKeys, block: number): boolean {
  if (block >= a.length || block >= b.length) return false;
  for (let i = block * wordsPerKey; i < (block + 1) * wordsPerKey; i++) {
    if (a.words[i] !== b.words[i]) return false;
  }
  return true;
}

/** Blocks that the request may find. Its newest token is always computed: that samples the next token. */
function findable(core: SchedulerCore, { request, known }: RequestState): number {
  return Math.min(request.keys.length, Math.floor((known - 1) / core.port.blockTokens));
}

/**
 * Whether the next of the queue waits for a preempted request before it whose blocks are on their way: the next one
 * would take the room which that request needs. It does not wait while nothing runs, nor where loads are overlapped,
 * since the preempted request then computes from the front.
 */
function holdsBackFor<R extends ServingRequest>(core: SchedulerCore<R>, next: RequestState<R>): boolean {
  if (core.loadingCount === 0 || core.batch.size === 0 || core.config.prefixLoads !== 'awaited') return false;
  return core.holders.some(
    (holder) =>
      holder.phase === Phase.LOADING && holder.preemptions > 0 && core.waiting.isBefore(holder, next),
  );
}

/**
 * Matches and pins what is cached, and starts the loads. False, with nothing changed, if the request does not fit.
 */
function open<R extends ServingRequest>(core: SchedulerCore<R>, state: RequestState<R>): boolean {
  const { port } = core;
  const { keys, owner = 0 } = state.request;
  const { blockTokens } = port;
  const matched = port.matchLength(keys, findable(core, state));
  const tokens = core.chunk(state.known - matched * blockTokens);
  if (!port.canOpen(keys, matched, core.blocksFor(matched * blockTokens + tokens), owner)) return false;
  const full = Math.min(keys.length, Math.floor(state.known / blockTokens));
  const room = Math.min(core.blocksFor(state.limitTokens - 1), core.blocksFor(state.known) + AHEAD_BLOCKS);
  const sequence = port.open(keys, full, matched, core.nowUs, owner, room);
  state.sequence = sequence;
  state.blocks = sequence.matched;
  state.sealed = sequence.matched;
  state.computed = sequence.matched * blockTokens;
  core.hold(state);
  if (core.config.prefixLoads === 'overlapped' && sequence.matched > 0) beginTwoEnded(core, state);
  else if (!port.load(sequence, core.nowUs)) {
    port.release(sequence, core.nowUs);
    core.forgetSequence(state);
    return false;
  }
  core.waiting.take(state);
  core.opensLeft--;
  core.plan.opened.push(state.request);
  return true;
}

function defer<R extends ServingRequest>(core: SchedulerCore<R>, state: RequestState<R>): void {
  core.decide(SchedulerDecision.DEFER, state);
  core.counters.deferrals++;
  core.waiting.remove(state);
  core.loadingCount++;
  state.phase = Phase.LOADING;
}

function join<R extends ServingRequest>(
  core: SchedulerCore<R>,
  state: RequestState<R>,
  tokens: number,
): void {
  core.waiting.remove(state);
  core.stopHolding(state);
  const seat = core.batch.join(state);
  core.batch.newTokens[seat] = tokens;
  core.left -= tokens;
  core.counters.admissions++;
  if (!state.isTwoEnded) {
    core.counters.hitBlocks += Math.min(sequenceOf(state).matched, state.blocks) - state.recomputed;
  }
  core.decide(SchedulerDecision.ADMIT, state, state.computed, tokens);
  core.plan.admitted.push(state.request);
  if (core.config.publish === 'whenPlanned') core.seal(state, state.computed + tokens);
}
