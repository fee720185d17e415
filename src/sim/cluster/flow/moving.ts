/** What becomes of the requests of an instance that takes no more of them. */

import { Status } from '../../metrics/index.ts';
import type { ClusterCore } from '../core.ts';
import { scheduleRouting } from './deciding.ts';
import { giveBack } from './serving.ts';

/** What has not joined a batch of the instance is routed again. */
export function redirect(core: ClusterCore, number: number, nowUs: number): void {
  const instance = core.instances[number];
  const { table, control } = core;
  for (const request of core.requests) {
    if (request === undefined || table.instance[request.number] !== number) continue;
    const { number: row } = request;
    const status = table.status[row];
    if (status !== Status.QUEUED && status !== Status.ARRIVED) continue;
    if (status === Status.QUEUED) instance.release(request, nowUs);
    table.status[row] = Status.ARRIVED;
    table.instance[row] = -1;
    core.sent[number]--;
    control.ended(request, number, 'redirected', 0, nowUs);
    scheduleRouting(core, request, control.prioritise(request, nowUs), nowUs);
  }
}

/** The instance is gone, with what it still had. */
export function remove(core: ClusterCore, number: number, nowUs: number): void {
  const instance = core.instances[number];
  for (const request of core.requests) {
    if (request === undefined || core.table.instance[request.number] !== number) continue;
    giveBack(core, request.number, nowUs);
    if (core.table.status[request.number] === Status.ARRIVED) {
      instance.giveUp(request, Status.LOST, nowUs);
    } else {
      instance.remove(request, Status.LOST, nowUs);
    }
  }
  core.control.removeInstance(number);
  core.removed.push(number);
}
