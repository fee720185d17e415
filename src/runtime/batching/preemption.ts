/**
 * Makes room for running requests. First, waiting requests give up the blocks they hold, the last of the queue's
 * order first: the blocks stay cached and cost only a second lookup. Then the victim rule preempts a running request.
 */

import { type SchedulerCore, sequenceOf } from './core.ts';
import { Phase, type RequestState, type ServingRequest } from './request.ts';
import { SchedulerDecision } from './schedulerSink.ts';

/**
 * The last waiting request in the queue's order that holds blocks releases them. With `head`, only requests behind
 * `head` are considered.
 */
export function yieldHeldBlocks<R extends ServingRequest>(
  core: SchedulerCore<R>,
  head: RequestState<R> | null,
): boolean {
  const { waiting } = core;
  let last: RequestState<R> | null = null;
  for (const holder of core.holders) {
    if (head !== null && !waiting.isBefore(head, holder)) continue;
    if (last === null || waiting.isBefore(last, holder)) last = holder;
  }
  if (last === null) return false;
  core.decide(SchedulerDecision.YIELD, last);
  core.counters.yields++;
  core.port.cancel(sequenceOf(last), core.nowUs);
  core.forgetSequence(last);
  if (last.phase === Phase.LOADING) {
    last.phase = Phase.WAITING;
    core.loadingCount--;
    core.waiting.putBack(last);
  }
  return true;
}

/** The running request to preempt for the one of the seat: one whose room that request may take, or itself. */
export function victimOf<R extends ServingRequest>(core: SchedulerCore<R>, needing: number): number {
  const { batch, victimRule } = core;
  const last = batch.last();
  if (victimRule.takesTheLast && givesRoom(core, last, needing)) return last;
  let victim = -1;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    if (!givesRoom(core, seat, needing)) continue;
    if (victim === -1 || !victimRule.prefers(batch.state(victim), batch.state(seat))) victim = seat;
  }
  return victim;
}

function givesRoom<R extends ServingRequest>(core: SchedulerCore<R>, seat: number, needing: number): boolean {
  if (seat === needing) return true;
  const { batch, port } = core;
  const { owner = 0 } = batch.state(seat).request;
  return port.mayTakeFrom(owner, batch.state(needing).request.owner ?? 0);
}

/**
 * The request loses its blocks and its seat and waits at the head of the queue. Tokens that the step had planned for
 * it return to the budget.
 * @param forRoom whether others need its room, so that `offload` moves its blocks down
 */
export function preempt<R extends ServingRequest>(
  core: SchedulerCore<R>,
  seat: number,
  forRoom: boolean,
): void {
  core.left += core.batch.newTokens[seat];
  const state = core.batch.leave(seat) as RequestState<R>;
  core.decide(SchedulerDecision.PREEMPT, state, state.computed);
  core.counters.preemptions++;
  state.preemptions++;
  core.port.preempt(sequenceOf(state), forRoom && core.config.preemption === 'offload', core.nowUs);
  core.forgetSequence(state);
  if (core.config.preemption === 'restart') state.known = state.request.promptTokens;
  state.phase = Phase.WAITING;
  core.waiting.prepend(state);
  core.plan.preempted.push(state.request);
}
