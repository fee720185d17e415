/**
 * Making room for requests that run. First a waiting request gives up the blocks that it holds, the last in
 * the queue's order first: they stay cached and cost nothing but a second lookup. Then a running request
 * gives way, by the victim rule.
 */

import { type SchedulerCore, sequenceOf } from './core.ts';
import { Phase, type RequestState, type ServingRequest } from './request.ts';
import { SchedulerDecision } from './schedulerSink.ts';

/**
 * The last in the queue's order of the waiting requests that hold blocks lets them go. With `head`, only
 * those behind it are asked.
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

/**
 * The running request that gives way for the one of the seat: one whose room that one may take, or itself.
 */
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
 * The request gives up its blocks and its seat, and waits in front. Tokens that the step had for it are left
 * again.
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
