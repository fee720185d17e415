/**
 * Blocks that lost their bytes between steps, with their device or by a seal that failed. The manager counts
 * such losses, so a step in which there was none looks at one number.
 */

import { type SchedulerCore, sequenceOf } from '../core.ts';
import { Phase, type RequestState, type ServingRequest } from '../state/request.ts';

/**
 * Running requests with lost blocks are stalled: the step opens the blocks again, or computes the request
 * again. Waiting ones keep what is in place.
 */
export function noticeLosses<R extends ServingRequest>(core: SchedulerCore<R>): void {
  const { batch, port } = core;
  if (port.disturbances === core.disturbances) return;
  core.disturbances = port.disturbances;
  for (let seat = batch.first(); seat !== -1; seat = batch.next(seat)) {
    if (noticeLoss(batch.state(seat))) batch.setStalled(seat, 1);
  }
  for (const state of core.holders) {
    // Who still loads all it waits for is looked at when its loads have ended.
    const isLookedAt = state.phase === Phase.WAITING || state.isMeeting;
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
    // A block that fails to come behind what is computed is no loss.
    const tokens = batch.computed(seat) + batch.newTokens[seat];
    if (!state.isMeeting || !core.arePlaced(state, tokens)) return true;
  }
  return false;
}

function noticeLoss(state: RequestState): boolean {
  const { disturbances } = sequenceOf(state);
  if (disturbances === state.disturbances) return false;
  state.disturbances = disturbances;
  return true;
}
