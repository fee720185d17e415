/**
 * The way of a request through a cluster: it arrives, is admitted and routed, goes to its instance, and ends. Each function
 * changes the cluster's state at one event.
 */

//  Requests come from the workload's stream, and as the next round of a session whose last one ended.

import { invariant } from '../../runtime/errors.ts';
import type { EndKind } from '../control/controlPlane.ts';
import { GatewayQueue } from '../control/gatewayQueue.ts';
import type { RequestPriority, Stay } from '../control/policy.ts';
import { SimRequest } from '../instance/simRequest.ts';
import { Status } from '../metrics/requestTable.ts';
import type { WorkloadRequest } from '../workload/request.ts';
import type { ClusterCore } from './core.ts';
import type { Handoff } from './handoffs.ts';
import { forcedRouting, HANDOFF_READY, SimEvent } from './parts.ts';

/** At equal arrival times the stream's requests go before follow-ups. */
const FROM_STREAM = 0;
const FOLLOW_UP = 1;

/** The next request of the stream gets its place in the queue. */
export function pull(core: ClusterCore): void {
  const request = core.tape.next();
  if (request !== undefined) announce(core, request, FROM_STREAM);
}

function announce(core: ClusterCore, request: WorkloadRequest, rank: number): void {
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
  const { cancelUs } = request;
  if (cancelUs > 0 && cancelUs <= core.options.horizonUs) core.queue.schedule(cancelUs, SimEvent.CANCEL, row);
  core.queue.schedule(nowUs + core.options.admissionLatencyUs, SimEvent.ADMISSION, row);
}

/** The session of a request that ended goes on, if it does. */
function followUp(
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

//  Decisions of the control plane about a request, and their effects.

export function admit(core: ClusterCore, request: SimRequest, nowUs: number): void {
  const { control } = core;
  const number = core.admissions++;
  const decision = control.admit(request, nowUs, core.forced.admission?.get(number));
  core.observer.admission?.(request, decision, nowUs);
  switch (decision.verdict) {
    case 'reject':
      drop(core, request, Status.REJECTED, nowUs);
      return;
    case 'delay':
      core.queue.schedule(nowUs + decision.durationUs, SimEvent.ADMISSION, request.number);
      return;
    case 'admit': {
      const priority = control.prioritise(request, nowUs);
      core.observer.prioritised?.(request, priority, nowUs);
      if (core.gateway === null) scheduleRouting(core, request, priority, nowUs);
      else core.gateway.enqueue(request, priority, nowUs);
    }
  }
}

function scheduleRouting(
  core: ClusterCore,
  request: SimRequest,
  priority: RequestPriority,
  nowUs: number,
): void {
  request.routedWith = priority;
  core.queue.schedule(nowUs + core.options.routingLatencyUs, SimEvent.ROUTING, request.number);
}

export function route(core: ClusterCore, request: SimRequest, nowUs: number): void {
  const priority = request.routedWith;
  invariant(priority !== null, 'a request that is routed has a priority');
  request.routedWith = null;
  const number = core.routings++;
  const forced = forcedRouting(core.forced, number);
  const decision = core.control.route(request, priority, nowUs, forced, stayOf(core, request));
  request.formerTarget = -1;
  request.formerPrefill = -1;
  core.observer.routing?.(request, decision, nowUs);
  if (decision === null) {
    drop(core, request, Status.UNROUTABLE, nowUs);
    return;
  }
  request.priority = priority.rank;
  core.scaling?.routed(request, decision);
  if (decision.prefillInstance === -1) {
    send(core, request, decision.target, nowUs);
    return;
  }
  const decode = core.instances[decision.decodeInstance];
  if (!decode.canServe(request)) {
    core.table.instance[request.number] = decode.number;
    core.sent[decode.number]++;
    decode.giveUp(request, Status.UNSERVABLE, nowUs);
    return;
  }
  request.prefillInstance = decision.prefillInstance;
  request.decodeInstance = decision.decodeInstance;
  core.expected[decode.number]++;
  request.part = 'prefill';
  request.maxOutputTokens = 1;
  send(core, request, decision.prefillInstance, nowUs);
}

/** Where a request that is routed again was before. */
function stayOf(core: ClusterCore, { formerTarget, formerPrefill }: SimRequest): Stay | undefined {
  if (formerTarget === -1) return undefined;
  const configOf = (instance: number): string => core.instances[instance]?.configId ?? '';
  return { target: configOf(formerTarget), prefill: configOf(formerPrefill) };
}

//  How a request ends: on its instance, or before it came to one.

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
  // a part of an answer does not stand in what its user asks next
  followUp(core, workload, status, status === Status.COMPLETED ? generated : 0, timeUs);
}

/**
 * The instance at which the request was to go on waits for it no more.
 * @returns that instance, -1 for a request that was to go nowhere
 */
function unbind(core: ClusterCore, request: SimRequest): number {
  if (request.part !== 'prefill') return -1;
  core.expected[request.decodeInstance]--;
  return request.decodeInstance;
}

/** A request ends before it came to an instance. */
function drop(core: ClusterCore, request: SimRequest, status: Status, nowUs: number): void {
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
    case Status.CANCELLED:
      return 'timedOut';
    default:
      return 'dropped';
  }
}

//  The gateway's queue of a cluster: what the queue asks for, done on the cluster's state.

/** Null where the control plane has no such queue. */
export function makeGateway(core: ClusterCore): GatewayQueue | null {
  const { gateway } = core.options;
  if (gateway === undefined || core.control.gateway === null) return null;
  return new GatewayQueue(core.control, gateway, {
    scheduleDispatch: (timeUs) => {
      core.queue.schedule(timeUs, SimEvent.DISPATCH);
    },
    scheduleExpiry: (request, timeUs) => {
      core.queue.schedule(timeUs, SimEvent.EXPIRY, request.number);
    },
    dispatched: ({ request, priority, enqueuedUs }, nowUs) => {
      core.table.gatewayUs[request.number] = nowUs - enqueuedUs;
      scheduleRouting(core, core.request(request.number), priority, nowUs);
    },
    shed: (row, nowUs) => drop(core, core.request(row), Status.SHED, nowUs),
  });
}

//  Requests of an instance that takes no more: they drain, move or are lost.

/**
 * Routes again, within the pool, requests that have not joined a batch of the instance. An answer whose KV has come
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
 * pool; requests without one are lost.
 * @param all also requests whose KV is under way: it is sent again
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

// A request that was routed: on its way to its instance, with it, and from a prefill instance to its decode.

/** The request is on its way to the instance, and queues there after the queueing time. */
function send(core: ClusterCore, request: SimRequest, number: number, nowUs: number): void {
  core.table.instance[request.number] = number;
  core.sent[number]++;
  const instance = core.instances[number];
  // a run that is cut before the request is queued has lasted until now
  instance.endUs = Math.max(instance.endUs, nowUs);
  const queueingUs = instance.latency.queueingTimeUs(request.promptTokens);
  instance.engine.announce(request, nowUs, queueingUs);
  core.queue.schedule(nowUs + queueingUs, SimEvent.QUEUED, request.number, number, number);
}

export function enqueue(core: ClusterCore, row: number, number: number, nowUs: number): void {
  const request = core.requests[row];
  // routed to another instance meanwhile
  if (request === undefined || core.table.instance[row] !== number) return;
  const { deadlineUs } = request;
  core.instances[number].enqueue(request, nowUs);
  if (deadlineUs > nowUs && deadlineUs <= core.options.horizonUs && core.requests[row] !== undefined) {
    core.queue.schedule(deadlineUs, SimEvent.TIMEOUT, row, number, number);
  }
}

export function timeOut(core: ClusterCore, row: number, nowUs: number): void {
  const request = core.requests[row];
  // one that is being routed again gets its deadline anew
  if (request === undefined || core.table.instance[row] === -1) return;
  const handoff = core.handoffs.find(row);
  if (handoff === undefined || handoff.readyUs === -1) {
    giveBack(core, row, nowUs);
    core.instances[core.table.instance[row]].timeOut(request, nowUs);
    return;
  }
  endHandoff(core, handoff, Status.TIMED_OUT, nowUs);
}

/**
 * The user of a request gives it up, wherever it is: in the gateway's queue, with an instance, or between two. One that
 * is on its way to its instance ends when it has come there.
 */
export function cancel(core: ClusterCore, row: number, nowUs: number): void {
  const request = core.requests[row];
  if (request === undefined) return;
  if (core.gateway?.remove(request) === true) {
    drop(core, request, Status.CANCELLED, nowUs);
    return;
  }
  if (core.table.instance[row] === -1) return;
  const handoff = core.handoffs.find(row);
  if (handoff !== undefined && handoff.readyUs !== -1) {
    endHandoff(core, handoff, Status.CANCELLED, nowUs);
    return;
  }
  giveBack(core, row, nowUs);
  core.instances[core.table.instance[row]].cancel(request, nowUs);
}

/**
 * A request whose prompt is computed ends before its KV has come to the decode instance. The prefill instance
 * has counted it off already, so the decode instance counts it in and off.
 */
function endHandoff(core: ClusterCore, handoff: Handoff, status: Status, nowUs: number): void {
  const { request, from, to } = handoff;
  core.table.instance[request.number] = to;
  core.sent[to]++;
  core.handoffs.cancel(handoff, core.instances[from], core.instances[to], nowUs);
  core.instances[from].wake(nowUs);
  core.instances[to].giveUp(request, status, nowUs);
  core.scaling?.left(from, nowUs);
}

/** A prefill instance has computed `tokens` of the prompt by `timeUs`: the blocks they fill may be sent. */
export function computed(
  core: ClusterCore,
  request: SimRequest,
  instance: number,
  tokens: number,
  timeUs: number,
): void {
  const { handoffs, instances } = core;
  if (!handoffs.sendsParts) return;
  handoffs.computed(request, instances[instance], request.decodeInstance, tokens, timeUs);
  if (handoffs.isPipelined && tokens < request.promptTokens) {
    core.queue.schedule(timeUs, SimEvent.HANDOFF, request.number, HANDOFF_READY);
  }
}

/** The request has lost its blocks, and computes its prompt anew: what is under way of it counts no more. */
export function gaveWay(core: ClusterCore, request: SimRequest, nowUs: number): void {
  giveBack(core, request.number, nowUs);
}

/** Ends the hand-off of a request, if it has one; others may have its room. */
function giveBack(core: ClusterCore, row: number, nowUs: number): void {
  const handoff = core.handoffs.find(row);
  if (handoff === undefined) return;
  const to = core.instances[handoff.to];
  core.handoffs.cancel(handoff, core.instances[handoff.from], to, nowUs);
  if (core.handoffs.waitingFor(handoff.to) > 0) {
    core.queue.schedule(nowUs, SimEvent.ROOM, handoff.to, 0, handoff.to);
  }
  to.wake(nowUs);
}

/** A prefill instance has computed the prompt by `timeUs`. */
export function prefilled(core: ClusterCore, request: SimRequest, instance: number, timeUs: number): void {
  const { nowUs } = core;
  core.control.ended(request, instance, 'handedOff', 0, nowUs);
  core.sent[instance]--;
  const decode = core.instances[request.decodeInstance];
  core.handoffs.begin(request, core.instances[instance], decode, nowUs, timeUs);
  core.queue.schedule(timeUs, SimEvent.HANDOFF, request.number, HANDOFF_READY);
}

/** @param what HANDOFF_READY or HANDOFF_ARRIVED */
export function handOff(core: ClusterCore, row: number, what: number, nowUs: number): void {
  const handoff = core.handoffs.find(row);
  if (handoff === undefined) return;
  const from = core.instances[handoff.from];
  const to = core.instances[handoff.to];
  if (what === HANDOFF_READY) {
    core.handoffs.ready(row, to, nowUs);
    return;
  }
  if (handoff.endUs !== nowUs) return; // of an earlier hand-off of the same row
  core.handoffs.arrived(handoff, from, to, nowUs);
  core.observer.handedOff?.(handoff);
  const { request } = handoff;
  unbind(core, request);
  request.part = 'decode';
  request.maxOutputTokens = request.workload.outputTokens;
  core.table.instance[row] = to.number;
  core.sent[to.number]++;
  to.enqueue(request, nowUs);
  from.wake(nowUs);
  core.scaling?.left(from.number, nowUs);
}

/** A transfer between tiers of the instance is due. It may have been what kept the room for a hand-off. */
export function transferred(core: ClusterCore, number: number, flight: number, nowUs: number): void {
  const instance = core.instances[number];
  instance.engine.transferred(flight);
  if (core.handoffs.waitingFor(number) > 0) core.handoffs.serve(instance, nowUs);
}
