/**
 * The first half of a step: tokens for the requests of the batch, in batch order, until the budget is spent. When every
 * request only decodes and there is room for all of them, the order does not matter, and only the seats that need a block
 * are touched.
 */

import { invariant } from '../errors.ts';
import type { SchedulerCore } from './core.ts';
import { preempt, victimOf, yieldHeldBlocks } from './preemption.ts';
import { SchedulerDecision } from './schedulerSink.ts';
import { Phase, type RequestState, type ServingRequest } from './state/request.ts';

/** Plans the running requests. @returns the tokens that are left of the step's budget */
export function planRunning<R extends ServingRequest>(core: SchedulerCore<R>): number {
  const { batch, config, port } = core;
  core.restIdle();
  if (
    batch.prefills === 0 &&
    batch.stalledCount === 0 &&
    batch.size <= config.maxBatchedTokens &&
    (batch.needingBlock === 0 || port.canAllocate(batch.needingBlock))
  ) {
    grantAll(core);
    return config.maxBatchedTokens - batch.size + core.idleCount;
  }
  const budget = planInOrder(core);
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    if (batch.newTokens[seat] === 0 && batch.isDecoding(seat)) core.leaveOut(seat);
  }
  return budget;
}

/** Every seat that needs a block gets one: there is room for all. */
function grantAll<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { batch } = core;
  for (let left = batch.needingBlock; left > 0; left--) {
    const seat = batch.firstNeedingBlock();
    const state = batch.state(seat);
    invariant(core.allocate(state, batch.known(seat)), 'there is room for a block for each that needs one');
    batch.grantBlock(seat);
    if (!core.isUnsettled(state)) continue;
    batch.setStalled(seat, 1);
    core.leaveOut(seat);
  }
}

function planInOrder<R extends ServingRequest>(core: SchedulerCore<R>): number {
  const { batch, config } = core;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) batch.newTokens[seat] = 0;
  let budget = config.maxBatchedTokens;
  for (let seat = batch.first(); seat !== -1 && budget > 0; seat = batch.next(seat)) {
    const state = batch.state(seat) as RequestState<R>;
    if (batch.isStalled[seat] === 1) {
      if (core.isUnsettled(state)) continue;
      core.keepPlaced(state);
      batch.setStalled(seat, 0);
    }
    const from = batch.computed(seat);
    const tokens = chunk(core, batch.known(seat) - from, budget);
    if (core.blocksFor(from + tokens) > state.blocks) {
      const returned = allocateByForce(core, seat, from + tokens);
      if (returned === -1) return budget;
      budget += returned;
      if (core.isUnsettled(state)) {
        batch.setStalled(seat, 1);
        continue;
      }
    }
    if (batch.needsBlock(seat)) batch.grantBlock(seat);
    batch.newTokens[seat] = tokens;
    budget -= tokens;
    if (state.phase === Phase.PREFILL) core.decide(SchedulerDecision.CHUNK, state, from, tokens);
  }
  return budget;
}

/** Tokens of one request's step: what it lacks, within the long-prefill limit and the budget. */
export function chunk(core: SchedulerCore, lacking: number, budget: number): number {
  const { longPrefillTokens } = core.config;
  const wanted = longPrefillTokens > 0 ? Math.min(lacking, longPrefillTokens) : lacking;
  return Math.min(wanted, budget);
}

/**
 * Opens the blocks of the seat's first `tokens` tokens, and makes others give way until there is room.
 * @returns tokens of this step that those who gave way return to the budget, or -1 when the seat itself gave way
 */
function allocateByForce<R extends ServingRequest>(
  core: SchedulerCore<R>,
  seat: number,
  tokens: number,
): number {
  const { batch } = core;
  const state = batch.state(seat);
  let returned = 0;
  while (!core.allocate(state, tokens)) {
    if (yieldHeldBlocks(core, null)) continue;
    const victim = victimOf(core);
    returned += batch.newTokens[victim];
    preempt(core, victim);
    if (victim === seat) return -1;
  }
  return returned;
}
