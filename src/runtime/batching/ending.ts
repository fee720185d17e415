/**
 * The end of a step: prefills have come further, decodes have one token more, full blocks may be published, and
 * complete requests leave. Requests leave in batch order; each lets its last block go first.
 */

import { type SchedulerCore, sequenceOf } from './core.ts';
import { preempt } from './preemption.ts';
import { FinishReason, Phase, type RequestState, type ServingRequest } from './request.ts';
import { SchedulerDecision } from './schedulerSink.ts';

/**
 * Settles a computed step.
 * @param stopped requests that hit a stop condition with the token they sampled
 */
export function endStep<R extends ServingRequest>(
  core: SchedulerCore<R>,
  stopped: readonly RequestState<R>[],
): void {
  const { batch } = core;
  for (let i = 0; i < core.idleCount; i++) batch.skip(core.idleSeat(i));
  batch.advance();
  core.restIdle();
  const leaving = core.leaving;
  leaving.length = 0;
  endDue(core, leaving);
  endPrefills(core, leaving);
  for (const state of stopped) if (!leaving.includes(state)) leaving.push(state);
  for (const state of core.abortedInStep) if (!leaving.includes(state)) leaving.push(state);
  if (leaving.length > 1) leaving.sort((a, b) => (batch.joinedBefore(a.seat, b.seat) ? -1 : 1));
  for (const state of leaving) {
    batch.leave(state.seat);
    const reason = reasonOf(core, state, stopped);
    finish(core, state, reason);
    core.outcome.noteFinished(state, reason);
  }
  leaving.length = 0;
  if (core.abortedInStep.length > 0) core.abortedInStep.length = 0;
}

/**
 * Settles a failed step: every running request is preempted with the tokens it had, in an order that puts the first
 * of the batch at the head of the queue again.
 */
export function failStep<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { batch } = core;
  core.restIdle();
  for (const state of core.abortedInStep) {
    batch.leave(state.seat);
    finish(core, state, FinishReason.ABORTED);
    core.outcome.noteFinished(state, FinishReason.ABORTED);
  }
  core.abortedInStep.length = 0;
  const seats: number[] = [];
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) seats.push(seat);
  for (const seat of seats.reverse()) preempt(core, seat, false);
}

/** Seats whose block is full, or whose request has all its tokens. */
function endDue<R extends ServingRequest>(core: SchedulerCore<R>, leaving: RequestState<R>[]): void {
  const { batch } = core;
  let next = -1;
  for (let seat = batch.firstDueNow(); seat !== -1; seat = next) {
    next = batch.nextAlike(seat);
    const state = batch.state(seat) as RequestState<R>;
    const computed = batch.computed(seat);
    core.seal(state, computed);
    if (computed + 1 >= state.limitTokens) leaving.push(state);
    else batch.fillBlock(seat);
  }
}

function endPrefills<R extends ServingRequest>(core: SchedulerCore<R>, leaving: RequestState<R>[]): void {
  const { batch } = core;
  let next = -1;
  for (let seat = batch.firstPrefill(); seat !== -1; seat = next) {
    next = batch.nextAlike(seat);
    const tokens = batch.newTokens[seat];
    if (tokens === 0) continue;
    batch.newTokens[seat] = 0;
    const state = batch.state(seat) as RequestState<R>;
    state.computed += tokens;
    core.seal(state, state.computed);
    if (state.computed < state.known) continue;
    state.known++;
    core.outcome.started.push(state.request);
    if (state.known >= state.limitTokens) leaving.push(state);
    else batch.startDecoding(seat);
  }
}

function reasonOf<R extends ServingRequest>(
  core: SchedulerCore<R>,
  state: RequestState<R>,
  stopped: readonly RequestState<R>[],
): FinishReason {
  if (core.abortedInStep.includes(state)) return FinishReason.ABORTED;
  if (stopped.includes(state)) return FinishReason.STOP;
  const { promptTokens, maxOutputTokens } = state.request;
  const wanted = promptTokens + Math.max(maxOutputTokens, 1);
  return state.known >= wanted ? FinishReason.LENGTH : FinishReason.CAPACITY;
}

/** Ends the request and lets its blocks go; what it published stays cached. It is in no queue and has no seat. */
export function finish<R extends ServingRequest>(
  core: SchedulerCore<R>,
  state: RequestState<R>,
  reason: FinishReason,
): void {
  core.decide(SchedulerDecision.FINISH, state, reason, state.known - state.request.promptTokens);
  if (state.sequence !== null) {
    if (reason === FinishReason.ABORTED) core.port.cancel(sequenceOf(state), core.nowUs);
    else core.port.release(sequenceOf(state), core.nowUs);
    core.forgetSequence(state);
  }
  state.phase = Phase.ENDED;
  core.requests.delete(state.request.id);
  core.counters.finished++;
}

// Blocks that lost their bytes between steps, with their device or by a failed seal. The manager counts losses, so a
// step without one compares a single number.

/**
 * Stalls running requests that lost blocks: the step opens the blocks again, or computes the request again. Waiting
 * requests keep what is in place.
 */
export function noticeLosses<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { batch, port } = core;
  if (port.disturbances === core.disturbances) return;
  core.disturbances = port.disturbances;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    if (noticeLoss(batch.state(seat))) batch.setStalled(seat, 1);
  }
  for (const state of core.holders) {
    // A request that still loads everything it waits for is looked at when its loads have ended.
    const isLookedAt = state.phase === Phase.WAITING || state.isTwoEnded;
    if (noticeLoss(state) && isLookedAt) core.keepPlaced(state);
  }
}

/** Whether a running request has lost blocks since its step was planned. */
export function isDisturbed<R extends ServingRequest>(core: SchedulerCore<R>): boolean {
  const { batch, port } = core;
  if (port.disturbances === core.disturbances) return false;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    const state = batch.state(seat);
    if (sequenceOf(state).disturbances === state.disturbances) continue;
    // A block behind the computed tokens that fails to come is not a loss.
    const tokens = batch.computed(seat) + batch.newTokens[seat];
    if (!state.isTwoEnded || !core.arePlaced(state, tokens)) return true;
  }
  return false;
}

function noticeLoss(state: RequestState): boolean {
  const { disturbances } = sequenceOf(state);
  if (disturbances === state.disturbances) return false;
  state.disturbances = disturbances;
  return true;
}
