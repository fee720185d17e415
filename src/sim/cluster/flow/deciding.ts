/** What the control plane decides about a request, and what comes of it. */

import { invariant } from '../../../runtime/errors.ts';
import type { Priority, Stay } from '../../control/index.ts';
import type { SimRequest } from '../../instance/index.ts';
import { Status } from '../../metrics/index.ts';
import type { ClusterCore } from '../core.ts';
import { SimEvent } from '../events.ts';
import { forcedRouting } from '../forced.ts';
import { drop } from './ending.ts';
import { send } from './serving.ts';

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

export function scheduleRouting(
  core: ClusterCore,
  request: SimRequest,
  priority: Priority,
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
