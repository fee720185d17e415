/** The scheduler's audit: each request is in exactly one place, holds what its phase says, and the budget holds. */

import { invariant } from '../errors.ts';
import { type SchedulerCore, sequenceOf } from './core.ts';
import { Phase, type RequestState } from './request.ts';

export function checkIntegrity(core: SchedulerCore, isComputing: boolean): void {
  core.waiting.checkIntegrity();
  core.batch.checkIntegrity();
  let waiting = 0;
  let loading = 0;
  let running = 0;
  let holding = 0;
  for (const [id, state] of core.requests) {
    invariant(state.request.id === id, 'a request is listed under its id');
    checkRequest(core, state, isComputing);
    if (state.phase === Phase.WAITING) waiting++;
    else if (state.phase === Phase.LOADING) loading++;
    else running++;
    if (state.seat === -1 && state.sequence !== null) holding++;
  }
  invariant(waiting === core.waiting.size, 'each waiting request is in the queue');
  invariant(loading === core.loadingCount, 'the scheduler knows how many requests load');
  invariant(running === core.batch.size, 'each running request has a seat');
  invariant(
    holding === core.holders.length,
    'the scheduler lists the requests that hold blocks while waiting',
  );
  invariant(new Set(core.holders).size === core.holders.length, 'a request holds once');
  for (const state of core.holders) invariant(state.sequence !== null, 'a holder has blocks');
  if (isComputing) checkPlan(core);
}

function checkRequest(core: SchedulerCore, state: RequestState, isComputing: boolean): void {
  const { blockTokens } = core.port;
  const isRunning = state.phase === Phase.PREFILL || state.phase === Phase.DECODE;
  invariant(state.phase !== Phase.ENDED, 'a request that ended is not listed');
  invariant(isRunning === (state.seat !== -1), 'a request has a seat while it runs');
  invariant(
    (state.phase === Phase.WAITING) === (state.heapIndex !== -1),
    'a request is queued while it waits',
  );
  if (state.sequence === null) {
    invariant(!isRunning && state.phase !== Phase.LOADING, 'a request that runs or loads has blocks');
    invariant(state.computed === 0 && state.blocks === 0, 'nothing is computed without blocks');
    return;
  }
  const computed = isRunning ? core.batch.computed(state.seat) : state.computed;
  invariant(computed <= state.blocks * blockTokens, 'each computed token has its place in a block');
  const coming = isComputing && isRunning ? core.batch.newTokens[state.seat] : 0;
  invariant(state.sealed * blockTokens <= computed + coming, 'sealed blocks are full');
  invariant(state.blocks <= sequenceOf(state).length, 'the sequence has the blocks');
}

function checkPlan(core: SchedulerCore): void {
  const { plan, batch, config, port } = core;
  let tokens = 0;
  let requests = 0;
  let decodes = 0;
  for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
    const state = batch.state(seat);
    tokens += plan.tokensOf(seat);
    requests++;
    if (state.phase === Phase.DECODE) decodes++;
    const end = plan.from(seat) + plan.tokensOf(seat);
    invariant(end <= batch.known(seat), 'a step computes tokens that exist');
    invariant(end <= state.blocks * port.blockTokens, 'each planned token has its place in a block');
    const isPlaced = state.isTwoEnded ? core.arePlaced(state, end) : !core.isUnsettled(state);
    invariant(isPlaced, 'the blocks of a planned request are in place');
  }
  invariant(tokens === plan.tokens && requests === plan.requests, 'the plan knows its sums');
  invariant(decodes === plan.decodes, 'the plan knows its decodes');
  invariant(tokens <= config.maxBatchedTokens, 'a step keeps to its budget');
  invariant(requests <= config.maxSequences, 'a step keeps to its seats');
}
