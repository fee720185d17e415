/** The autoscaling of a cluster: what its loops ask for, done on the cluster's state. */

import type { Role } from '../../control/index.ts';
import type { ClusterCore } from '../core.ts';
import { SimEvent } from '../events.ts';
import { redirect, remove } from '../flow/index.ts';
import type { PoolPart } from '../parts.ts';
import { ScalingLoop, type ScalingSetup } from './scalingLoop.ts';
import { ScalingLoops } from './scalingLoops.ts';

export function makeScaling(core: ClusterCore, setups: readonly ScalingSetup[]): ScalingLoops {
  const { pools } = core.parts;
  const byPool = pools.map(({ configId }, pool) => {
    const number = setups.findIndex((setup) => setup.configId === configId);
    return number === -1 ? undefined : loopOf(core, setups[number], number, pool);
  });
  return new ScalingLoops(byPool, core.poolOf);
}

/** @param number of the autoscaler: of events at one time, lower ones go first */
function loopOf(core: ClusterCore, setup: ScalingSetup, number: number, pool: number): ScalingLoop {
  const { control } = core;
  const { pools, instances } = core.parts;
  const own = pools[pool];
  const place = {
    pool,
    initial: instances.flatMap((each, instance) => (each === pool ? [instance] : [])),
    alike: pools.filter((other) => isAlike(own, other)).length,
    serves: (model: string): boolean => own.model === '' || model === '' || own.model === model,
    computesForOthers: own.role === 'prefill',
  };
  return new ScalingLoop(setup, place, {
    scheduleCheck: (timeUs) => {
      core.queue.schedule(timeUs, SimEvent.SCALE_CHECK, number, 0, number);
    },
    scheduleDue: (timeUs, replica) => {
      core.queue.schedule(timeUs, SimEvent.SCALE_ACTION, replica, number, number);
    },
    pendingRequests: () => control.gateway?.count(({ model }) => place.serves(model)) ?? 0,
    hasWork: () => core.hasWork,
    snapshots: (nowUs) => {
      return control.cluster(nowUs).instances.filter(({ instance }) => core.poolOf[instance] === pool);
    },
    table: core.table,
    makeInstance: () => core.addInstance(pool).number,
    setRoutable: (instance, routable) => control.setRoutable(instance, routable),
    isEmpty: (instance) => {
      const { sent, expected, handoffs } = core;
      return sent[instance] === 0 && expected[instance] === 0 && !handoffs.holdsAny(instance);
    },
    redirect: (instance, nowUs) => redirect(core, instance, nowUs),
    remove: (instance, nowUs) => remove(core, instance, nowUs),
    scaled: (change) => core.observer.scaled?.(change),
    replica: (change) => core.observer.replica?.(change),
  });
}

/** Whether a request could go to either of them. */
function isAlike(one: PoolPart, other: PoolPart): boolean {
  const computes = (role: Role): boolean => role === 'prefill';
  if (computes(one.role) !== computes(other.role)) return false;
  return one.model === '' || other.model === '' || one.model === other.model;
}
