/** The autoscaling loop of a cluster: what the loop asks for, done on the cluster's state. */

import type { ClusterCore } from '../core.ts';
import { SimEvent } from '../events.ts';
import { redirect, remove } from '../flow/index.ts';
import { ScalingLoop, type ScalingSetup } from './scalingLoop.ts';

export function makeScaling(core: ClusterCore, setup: ScalingSetup): ScalingLoop {
  const { control } = core;
  return new ScalingLoop(setup, {
    scheduleCheck: (timeUs) => {
      core.queue.schedule(timeUs, SimEvent.SCALE_CHECK);
    },
    scheduleDue: (timeUs, replica) => {
      core.queue.schedule(timeUs, SimEvent.SCALE_ACTION, replica);
    },
    pendingRequests: () => control.gateway?.size ?? 0,
    hasWork: () => core.hasWork,
    snapshots: (nowUs) => control.cluster(nowUs).instances,
    takeTraffic: (nowUs) => core.traffic.take(control.cluster(nowUs).instances, nowUs),
    makeInstance: () => core.addInstance().number,
    setRoutable: (instance, routable) => control.setRoutable(instance, routable),
    isEmpty: (instance) => core.sent[instance] === 0,
    redirect: (instance, nowUs) => redirect(core, instance, nowUs),
    remove: (instance, nowUs) => remove(core, instance, nowUs),
    scaled: (decision, before, nowUs) => core.observer.scaled?.(decision, before, nowUs),
  });
}
