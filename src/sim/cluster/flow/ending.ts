/** How a request ends: on its instance, or before it came to one. */

import type { EndKind } from '../../control/index.ts';
import type { SimRequest } from '../../instance/index.ts';
import { Status } from '../../metrics/index.ts';
import type { ClusterCore } from '../core.ts';
import { SimEvent } from '../events.ts';
import { followUp } from './arriving.ts';

/** The request ended on the instance at `timeUs`; its row says how. */
export function ended(core: ClusterCore, request: SimRequest, instance: number, timeUs: number): void {
  const { number: row, workload } = request;
  const { nowUs, table } = core;
  core.requests[row] = undefined;
  core.open--;
  const status = table.status[row] as Status;
  const generated = table.generatedTokens[row];
  core.control.ended(request, instance, endKind(status), generated, nowUs);
  core.observer.ended?.(request, status, timeUs, instance);
  core.sent[instance]--;
  const awaited = unbind(core, request);
  core.scaling?.ended(row, instance, request.prefillInstance);
  core.scaling?.left(instance, nowUs);
  if (awaited !== -1) core.scaling?.left(awaited, nowUs);
  if (core.handoffs.waitingFor(instance) > 0) {
    // its blocks come free then, and others wait for them
    core.queue.schedule(Math.max(timeUs, nowUs), SimEvent.ROOM, instance, 0, instance);
  }
  followUp(core, workload, status, generated, timeUs);
}

/**
 * The instance at which the request was to go on waits for it no more.
 * @returns that instance, -1 for a request that was to go nowhere
 */
export function unbind(core: ClusterCore, request: SimRequest): number {
  if (request.part !== 'prefill') return -1;
  core.expected[request.decodeInstance]--;
  return request.decodeInstance;
}

/** A request ends before it came to an instance. */
export function drop(core: ClusterCore, request: SimRequest, status: Status, nowUs: number): void {
  core.requests[request.number] = undefined;
  core.open--;
  core.table.status[request.number] = status;
  if (status !== Status.REJECTED) core.control.abandoned(request, nowUs);
  core.observer.ended?.(request, status, nowUs, -1);
  followUp(core, request.workload, status, 0, nowUs);
}

/** A request has waited in the gateway's queue as long as it may. */
export function expire(core: ClusterCore, row: number, nowUs: number): void {
  const request = core.requests[row];
  if (request === undefined || core.gateway?.remove(request) !== true) return;
  drop(core, request, Status.EXPIRED, nowUs);
}

function endKind(status: Status): EndKind {
  switch (status) {
    case Status.COMPLETED:
      return 'completed';
    case Status.TIMED_OUT:
      return 'timedOut';
    default:
      return 'dropped';
  }
}
