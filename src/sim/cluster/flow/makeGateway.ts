/** The gateway's queue of a cluster: what the queue asks for, done on the cluster's state. */

import { Status } from '../../metrics/index.ts';
import type { ClusterCore } from '../core.ts';
import { SimEvent } from '../events.ts';
import { scheduleRouting } from './deciding.ts';
import { drop } from './ending.ts';
import { GatewayQueue } from './gatewayQueue.ts';

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
