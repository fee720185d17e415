/** What becomes of the requests of an instance that takes no more of them. */

import { invariant } from '../../../runtime/errors.ts';
import type { SimRequest } from '../../instance/index.ts';
import { Status } from '../../metrics/index.ts';
import type { ClusterCore } from '../core.ts';
import { scheduleRouting } from './deciding.ts';
import { unbind } from './ending.ts';
import { endHandoff, giveBack } from './serving.ts';

/**
 * What has not joined a batch of the instance is routed again within its pool. An answer whose KV has come
 * stays with it; one whose KV is not on its way yet goes on at another instance.
 */
export function redirect(core: ClusterCore, number: number, nowUs: number): void {
  for (const request of core.requests) {
    if (request === undefined || core.table.instance[request.number] !== number) continue;
    const status = core.table.status[request.number];
    if (request.part === 'decode' || (status !== Status.QUEUED && status !== Status.ARRIVED)) continue;
    routeAgain(core, request, number, nowUs);
  }
  rehome(core, number, false, nowUs);
}

function routeAgain(core: ClusterCore, request: SimRequest, number: number, nowUs: number): void {
  const { table, control } = core;
  const { number: row } = request;
  if (table.status[row] === Status.QUEUED) core.instances[number].release(request, nowUs);
  table.status[row] = Status.ARRIVED;
  table.instance[row] = -1;
  core.sent[number]--;
  const awaited = unbind(core, request);
  request.formerTarget = awaited === -1 ? number : awaited;
  request.formerPrefill = awaited === -1 ? -1 : number;
  request.part = 'whole';
  request.prefillInstance = -1;
  request.decodeInstance = -1;
  request.maxOutputTokens = request.workload.outputTokens;
  control.ended(request, number, 'redirected', 0, nowUs);
  scheduleRouting(core, request, control.prioritise(request, nowUs), nowUs);
  if (awaited !== -1) core.scaling?.left(awaited, nowUs);
}

/**
 * Requests whose prompt is computed elsewhere, and that were to go on here, go on at another instance of the
 * pool; those that find none are lost.
 * @param all those too whose KV is under way: it is sent again
 */
function rehome(core: ClusterCore, number: number, all: boolean, nowUs: number): void {
  const was = core.instances[number];
  for (const request of core.requests) {
    if (request === undefined || request.part !== 'prefill' || request.decodeInstance !== number) continue;
    const handoff = core.handoffs.find(request.number);
    if (handoff?.state === 'transferring' && !all) continue;
    const priority = core.control.prioritise(request, nowUs);
    const to = core.control.rehome(request, priority, number, was.configId, nowUs);
    if (to === -1) {
      if (all) lose(core, request, nowUs);
      continue;
    }
    core.expected[number]--;
    core.expected[to]++;
    request.decodeInstance = to;
    if (handoff !== undefined) core.handoffs.turn(handoff, was, core.instances[to], nowUs);
  }
}

/** The instance is gone, with what it still had. */
export function remove(core: ClusterCore, number: number, nowUs: number): void {
  rehome(core, number, true, nowUs);
  for (const request of core.requests) {
    if (request !== undefined && core.table.instance[request.number] === number) lose(core, request, nowUs);
  }
  invariant(core.sent[number] === 0 && core.expected[number] === 0, () => {
    const { sent, expected } = core;
    return `instance ${number} is gone with ${sent[number]} requests, and ${expected[number]} to come`;
  });
  core.control.removeInstance(number);
  core.removed.push(number);
}

/** Takes a request off the instance that has it. */
function lose(core: ClusterCore, request: SimRequest, nowUs: number): void {
  const handoff = core.handoffs.find(request.number);
  if (handoff !== undefined && handoff.readyUs !== -1) {
    endHandoff(core, handoff, Status.LOST, nowUs);
    return;
  }
  giveBack(core, request.number, nowUs);
  const instance = core.instances[core.table.instance[request.number]];
  if (core.table.status[request.number] === Status.ARRIVED) instance.giveUp(request, Status.LOST, nowUs);
  else instance.remove(request, Status.LOST, nowUs);
}
