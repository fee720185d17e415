/** Simulations whose instances are scheduled by a bundle. */

import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import type { PolicyBundle, TreeNode } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import type { BoundPolicies } from '../../../src/sim/build/built.ts';
import type { SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import type { Simulation } from '../../../src/sim/cluster/simulation.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import {
  newSimulation,
  type PoolConfig,
  type SimulationSetup,
} from '../../../src/sim/description/deployment.ts';
import { type SmallRequest, smallPool, smallWorkload, streamOf } from '../../sim/cluster/smallCluster.ts';

export function program(
  source: string,
  language: 'starlark' | 'wasm' | 'javascript' = 'starlark',
): PolicyBundle {
  return { instanceScheduler: { type: 'code', language, source } };
}

export function tree(entrypoint: string, root: TreeNode): PolicyBundle {
  return { instanceScheduler: { type: 'decisionTree', entrypoint, root } };
}

export function named(template: string, parameters: Record<string, string | number> = {}): PolicyBundle {
  return { instanceScheduler: { type: 'parameterized', template, parameters } };
}

/** The same setup, its instances scheduled by the bundle. */
export function scheduledBy(
  setup: SimulationSetup,
  { scheduler, makeEngine }: BoundPolicies,
): SimulationSetup {
  const pools = setup.deployment.pools.map((pool): PoolConfig => {
    return { ...pool, engine: { ...pool.engine, scheduler: { ...pool.engine.scheduler, ...scheduler } } };
  });
  return { ...setup, deployment: { ...setup.deployment, pools }, ...(makeEngine && { makeEngine }) };
}

export function smallSetup(
  pool: PoolConfig,
  requests: readonly SmallRequest[],
  observer: SimulationObserver,
): SimulationSetup {
  return {
    deployment: { pools: [pool] },
    workload: { stream: streamOf(smallWorkload(requests)), sessions: undefined },
    control: new PolicyControlPlane({}, { key: 1n, blockTokens: 4, maxSequences: 16 }),
    observer,
    options: {
      horizonUs: Infinity,
      admissionLatencyUs: 0,
      routingLatencyUs: 0,
      lastTokenInContext: true,
      handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 1e8 },
    },
  };
}

export interface Order {
  /** Numbers of requests, in the order in which they joined the batch, and in which they gave way. */
  readonly joined: number[];
  readonly gaveWay: number[];
}

/** One instance, to its end. */
export async function orderOf(
  bundle: PolicyBundle,
  requests: readonly SmallRequest[],
  options: Parameters<typeof smallPool>[0] = {},
): Promise<Order> {
  const order: Order = { joined: [], gaveWay: [] };
  const watch: SimulationObserver = {
    joined: ({ number }) => void order.joined.push(number),
    preempted: ({ number }) => void order.gaveWay.push(number),
  };
  const setup = smallSetup(smallPool(options), requests, watch);
  audited(newSimulation(scheduledBy(setup, await bindBundle(bundle))));
  return order;
}

export function audited(simulation: Simulation): Simulation {
  for (let i = 0; simulation.runSome(256); i++) {
    simulation.checkIntegrity();
    if (i > 500) throw new Error('the run has no end');
  }
  simulation.close();
  return simulation;
}
