/**
 * A request that was routed: on its way to its instance, with it, and from a prefill instance to its decode.
 */

import type { SimRequest } from '../../instance/index.ts';
import { Status } from '../../metrics/index.ts';
import type { ClusterCore } from '../core.ts';
import { HANDOFF_READY, SimEvent } from '../events.ts';
import { unbind } from './ending.ts';
import type { Handoff } from './handoff.ts';

/** The request is on its way to the instance, and queues there after the queueing time. */
export function send(core: ClusterCore, request: SimRequest, number: number, nowUs: number): void {
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
 * A request whose prompt is computed ends before its KV has come to the decode instance. The prefill instance
 * has counted it off already, so the decode instance counts it in and off.
 */
export function endHandoff(core: ClusterCore, handoff: Handoff, status: Status, nowUs: number): void {
  const { request, from, to } = handoff;
  core.table.instance[request.number] = to;
  core.sent[to]++;
  core.handoffs.cancel(handoff, core.instances[from], core.instances[to], nowUs);
  core.instances[from].wake(nowUs);
  core.instances[to].giveUp(request, status, nowUs);
  core.scaling?.left(from, nowUs);
}

/** A prefill instance has computed so many tokens of the prompt by `timeUs`: what they fill may go. */
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
export function giveBack(core: ClusterCore, row: number, nowUs: number): void {
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
  instance.transferred(flight);
  if (core.handoffs.waitingFor(number) > 0) core.handoffs.serve(instance, nowUs);
}
