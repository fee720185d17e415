/**
 * The first half of a step: tokens for the requests of the batch, in batch order, until the budget is spent. If every
 * request only decodes and all fit, order does not matter and only the seats that need a block are touched.
 */

import type { SchedulerCore } from './core.ts';
import { preempt, victimOf, yieldHeldBlocks } from './preemption.ts';
import { Phase, type ServingRequest } from './request.ts';
import { SchedulerDecision } from './schedulerSink.ts';
import { ENDS_MET, NO_ROOM, twoEndedTokens } from './twoEndedPrefill.ts';

/** Plans the running requests, with the whole budget of the step. */
export function planRunning<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { batch, config, port } = core;
  core.restIdle();
  if (
    batch.prefills === 0 &&
    batch.stalledCount === 0 &&
    batch.size <= config.maxBatchedTokens &&
    (batch.needingBlock === 0 || port.canAllocate(batch.needingBlock))
  ) {
    if (grantAll(core)) {
      core.left = config.maxBatchedTokens - batch.size + core.idleCount;
      return;
    }
    core.restIdle();
  }
  planInOrder(core);
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    if (batch.newTokens[seat] === 0 && batch.isDecoding(seat)) core.leaveOut(seat);
  }
}

/**
 * Gives a block to every seat that needs one, if there is room for all.
 * @returns false if an owner's quota forbids one; seats that got a block keep it
 */
function grantAll<R extends ServingRequest>(core: SchedulerCore<R>): boolean {
  const { batch } = core;
  for (let left = batch.needingBlock; left > 0; left--) {
    const seat = batch.firstNeedingBlock();
    const state = batch.state(seat);
    if (!core.allocate(state, batch.known(seat))) return false;
    batch.grantBlock(seat);
    if (!core.isUnsettled(state)) continue;
    batch.setStalled(seat, 1);
    core.leaveOut(seat);
  }
  return true;
}

function planInOrder<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { batch, config } = core;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) batch.newTokens[seat] = 0;
  core.left = config.maxBatchedTokens;
  let next = -1;
  for (let seat = batch.first(); seat !== -1 && core.left > 0; seat = next) {
    next = batch.next(seat);
    if (batch.isStalled[seat] === 1 && !resume(core, seat)) continue;
    const state = batch.state(seat);
    if (state.isTwoEnded) {
      const part = partByForce(core, seat);
      if (part === NO_ROOM) return;
      next = batch.next(seat);
      if (part !== ENDS_MET) {
        batch.newTokens[seat] = part;
        core.left -= part;
        if (part > 0) core.decide(SchedulerDecision.CHUNK, state, state.computed, part);
        continue;
      }
    }
    const from = batch.computed(seat);
    const tokens = core.chunk(batch.known(seat) - from);
    if (core.blocksFor(from + tokens) > state.blocks) {
      if (!allocateByForce(core, seat, from + tokens)) return;
      next = batch.next(seat);
      if (core.isUnsettled(state)) {
        batch.setStalled(seat, 1);
        continue;
      }
    }
    if (batch.needsBlock(seat)) batch.grantBlock(seat);
    batch.newTokens[seat] = tokens;
    core.left -= tokens;
    if (state.phase === Phase.PREFILL) core.decide(SchedulerDecision.CHUNK, state, from, tokens);
  }
}

/**
 * A stalled seat goes on when its blocks are in place. Failed blocks are opened again if nothing was computed in them
 * yet; otherwise the request is preempted, to be computed again.
 */
function resume<R extends ServingRequest>(core: SchedulerCore<R>, seat: number): boolean {
  const { batch, port } = core;
  const state = batch.state(seat);
  if (!state.isTwoEnded && core.isUnsettled(state)) return false;
  core.keepPlaced(state);
  batch.setStalled(seat, 0);
  if (state.blocks * port.blockTokens >= batch.computed(seat)) return true;
  preempt(core, seat, false);
  return false;
}

/** Publishes the blocks that the planned step fills for running requests: none of them can be preempted any more. */
export function sealPlanned(core: SchedulerCore): void {
  const { batch, plan } = core;
  for (let seat = plan.firstPrefill(); seat !== -1; seat = plan.nextPrefill(seat)) {
    core.seal(batch.state(seat), batch.computed(seat) + batch.newTokens[seat]);
  }
  for (let seat = batch.firstDue(); seat !== -1; seat = batch.nextAlike(seat)) {
    if (batch.newTokens[seat] > 0) core.seal(batch.state(seat), batch.computed(seat) + 1);
  }
}

/** Tokens of a prefill from both ends; others are preempted for it. NO_ROOM: it was preempted itself. */
function partByForce<R extends ServingRequest>(core: SchedulerCore<R>, seat: number): number {
  const state = core.batch.state(seat);
  for (;;) {
    const part = twoEndedTokens(core, state);
    if (part !== NO_ROOM) return part;
    if (yieldHeldBlocks(core, null)) continue;
    const victim = victimOf(core, seat);
    preempt(core, victim, true);
    if (victim === seat) return NO_ROOM;
  }
}

/**
 * Opens the blocks of the seat's first `tokens` tokens, preempting others until there is room.
 * @returns false if the seat itself was preempted
 */
function allocateByForce<R extends ServingRequest>(
  core: SchedulerCore<R>,
  seat: number,
  tokens: number,
): boolean {
  const state = core.batch.state(seat);
  while (!core.allocate(state, tokens)) {
    if (yieldHeldBlocks(core, null)) continue;
    const victim = victimOf(core, seat);
    preempt(core, victim, true);
    if (victim === seat) return false;
  }
  return true;
}

// The steady state: each running request computes the token it sampled last, and no request waits, lacks a block,
// fills one or ends. Between two tokens that fill a block every step of a batch is of this kind, so it costs a few
// counters, whatever the batch's size.

/** Whether the step being planned is one of the steady state. */
export function isSteady<R extends ServingRequest>(core: SchedulerCore<R>): boolean {
  const { batch } = core;
  return (
    core.requests.size === batch.size &&
    batch.isSteady &&
    batch.size <= core.config.maxBatchedTokens &&
    core.port.disturbances === core.disturbances
  );
}

/** The shortcut for `planRunning` and `admitWaiting` in the steady state. */
export function planSteady<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { plan, batch } = core;
  core.left = core.config.maxBatchedTokens - batch.decodes;
  plan.decodes = batch.decodes;
  plan.decodeContextTokens = batch.decodeContextTokens;
  plan.requests = batch.decodes;
  plan.tokens = batch.decodes;
}
