/** How requests come: from the workload's stream, and as the next round of a session whose last one ended. */

import { invariant } from '../../../runtime/errors.ts';
import { SimRequest } from '../../instance/index.ts';
import { Status } from '../../metrics/index.ts';
import type { WorkloadRequest } from '../../workload/index.ts';
import type { ClusterCore } from '../core.ts';
import { SimEvent } from '../events.ts';

/** Of equal arrival times, those of the stream go before follow-ups. */
const FROM_STREAM = 0;
export const FOLLOW_UP = 1;

/** The next request of the stream gets its place in the queue. */
export function pull(core: ClusterCore): void {
  const request = core.tape.next();
  if (request !== undefined) announce(core, request, FROM_STREAM);
}

export function announce(core: ClusterCore, request: WorkloadRequest, rank: number): void {
  const slot = core.freeSlots.pop() ?? core.coming.length;
  core.coming[slot] = request;
  core.queue.schedule(request.arrivalUs, SimEvent.ARRIVAL, slot, rank, rank);
}

export function arrived(core: ClusterCore, slot: number, rank: number, nowUs: number): void {
  const workload = core.coming[slot];
  invariant(workload !== undefined, 'a request that arrives was announced');
  core.coming[slot] = undefined;
  core.freeSlots.push(slot);
  if (rank !== FOLLOW_UP) pull(core);
  const row = core.table.add(workload);
  const request = new SimRequest(workload, row, core.parts.keys);
  core.requests[row] = request;
  core.open++;
  core.control.arrived(request, nowUs);
  core.scaling?.arrived(request);
  core.observer.arrived?.(request, nowUs);
  core.queue.schedule(nowUs + core.options.admissionLatencyUs, SimEvent.ADMISSION, row);
}

/** The session of a request that ended goes on, if it does. */
export function followUp(
  core: ClusterCore,
  workload: WorkloadRequest,
  status: Status,
  generated: number,
  timeUs: number,
): void {
  if (core.sessions === null) return;
  const outcome =
    status === Status.COMPLETED ? 'completed' : status === Status.TIMED_OUT ? 'timed-out' : 'dropped';
  const lost = core.options.lastTokenInContext ? 0 : 1;
  const contextTokens = Math.max(generated - lost, 0);
  const next = core.sessions.next(workload, { outcome, timeUs, contextTokens });
  if (next !== undefined) announce(core, next, FOLLOW_UP);
}
