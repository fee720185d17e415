/**
 * A deployment: pools of like instances, each with its engine, its model of time and its limits. From here a simulation
 * is built; all of it is plain data, so that it can be hashed, swept over and passed to other threads.
 */

import { configError, requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { HandoffConfig } from '../cluster/handoffs.ts';
import {
  type ForcedDecisions,
  keyOfSeed,
  type SimulatedWorkload,
  type SimulationKey,
  type SimulationObserver,
  type SimulationOptions,
  type SimulationParts,
} from '../cluster/parts.ts';
import type { ScalingSetup } from '../cluster/scaling.ts';
import { Simulation } from '../cluster/simulation.ts';
import type { SnapshotData } from '../cluster/snapshot.ts';
import type { ControlPlane } from '../control/controlPlane.ts';
import type { GatewayTiming } from '../control/gatewayQueue.ts';
import type { Role } from '../control/policy.ts';
import type { EngineConfig, InstanceEngine } from '../instance/engine.ts';
import { Instance, type InstanceLimits } from '../instance/instance.ts';
import type { InstanceShare } from '../instance/instanceDriver.ts';
import { SchedulerEngine } from '../instance/schedulerEngine.ts';
import { PromptKeys } from '../instance/simRequest.ts';
import type { LatencyModel } from '../latency/latencyModel.ts';
import type { Timeline } from '../links/modeledDriver.ts';

/** A pool of a fleet: how many instances it has, and the engine, latency model and limits that they share. */
export interface PoolConfig {
  readonly configId: string;
  readonly role: Role;
  /** Model that it serves, '' for any. */
  readonly model: string;
  readonly replicas: number;
  readonly engine: EngineConfig;
  readonly latency: LatencyModel;
  readonly limits: InstanceLimits;
}

/** Most instances of one simulation: their numbers order events. */
const INSTANCES_MAX = 1024;

const poolTable = optionTable(
  {
    configId: is.passed(),
    role: is.passed(),
    model: is.passed(),
    replicas: is.passed(),
    engine: is.passed(),
    latency: is.passed(),
    limits: is.passed(),
  } satisfies Kinds<PoolConfig>,
  'TKV_CONFIG',
);
const limitTable = optionTable(
  {
    maxModelTokens: is.passed(),
    maxSequences: is.passed(),
    preemption: is.passed(),
  } satisfies Kinds<InstanceLimits>,
  'TKV_CONFIG',
);

/** The pools of instances that a simulation has. */
export interface Fleet {
  readonly pools: readonly PoolConfig[];
}

/** Makes the engine of an instance. */
export type MakeEngine = (
  pool: PoolConfig,
  timeline: Timeline,
  woken: () => void,
  shared: InstanceShare | null,
) => InstanceEngine;

const fleetTable = optionTable({ pools: is.array() } satisfies Kinds<Fleet>, 'TKV_CONFIG');

/** @throws TKV_CONFIG with the field at fault, and the nearest name where one is unknown */
function checkDeployment(deployment: Fleet): Fleet {
  const { pools } = fleetTable.read(deployment, 'deployment');
  if (pools.length === 0)
    throw configError('pools', 'must not be empty', 'Name a pool with one replica or more.');
  let instances = 0;
  for (const pool of pools) {
    const { replicas, configId, engine, limits } = poolTable.read(pool, 'pool');
    limitTable.read(limits, `${configId}.limits`);
    instances += requireInteger(`${configId}.replicas`, replicas, 0, INSTANCES_MAX);
    if (!isSameShare(engine.shared, pools[0].engine.shared)) {
      const remedy = 'Give all pools the same one, or none.';
      throw configError(`${configId}.shared`, 'differs from the shared tier of another pool', remedy);
    }
    if (engine.blockTokens === pools[0].engine.blockTokens) continue;
    throw configError(
      `${configId}.blockTokens`,
      `is ${engine.blockTokens}, and another pool has ${pools[0].engine.blockTokens}`,
      'Use one size of blocks in a cluster.',
    );
  }
  if (instances === 0 || instances > INSTANCES_MAX) {
    const remedy = `Deploy from 1 to ${INSTANCES_MAX}.`;
    throw configError('replicas', `come to ${instances} instances`, remedy);
  }
  return deployment;
}

/** All instances share one tier, or none. */
function isSameShare(one: EngineConfig['shared'], other: EngineConfig['shared']): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Input of `newSimulation`: fleet, workload, control plane and options. */
export interface SimulationSetup {
  readonly deployment: Fleet;
  readonly workload: SimulatedWorkload;
  /** Default: one seed, 1, and policies without a name. */
  readonly key?: SimulationKey;
  readonly control: ControlPlane;
  readonly options: SimulationOptions;
  readonly observer?: SimulationObserver;
  /** Pools whose replicas come and go, each with its autoscaler. Their order does not matter. */
  readonly scaling?: readonly ScalingSetup[];
  /** Leaves block keys out where nothing is shared and one tier is all there is; see `PromptKeys`. */
  readonly skipsKeys?: boolean;
  /** Decisions that are taken out of the policies' hands. */
  readonly forced?: ForcedDecisions;
  /** Default: the real scheduler on the real manager. */
  readonly makeEngine?: MakeEngine;
}

const simulationSetupTable = optionTable(
  {
    deployment: is.passed(),
    workload: is.passed(),
    key: is.optional(is.passed()),
    control: is.passed(),
    options: is.passed(),
    observer: is.optional(is.passed()),
    scaling: is.optional(is.passed()),
    skipsKeys: is.optional(is.flag()),
    forced: is.optional(is.passed()),
    makeEngine: is.optional(is.passed()),
  } satisfies Kinds<SimulationSetup>,
  'TKV_CONFIG',
);

const simulationTable = optionTable(
  {
    horizonUs: is.passed(),
    admissionLatencyUs: is.passed(),
    routingLatencyUs: is.passed(),
    lastTokenInContext: is.flag(),
    handoff: is.passed(),
    gateway: is.optional(is.passed()),
  } satisfies Kinds<SimulationOptions>,
  'TKV_CONFIG',
);
const handoffTable = optionTable(
  {
    baseLatencyUs: is.passed(),
    bandwidthBytesPerS: is.passed(),
    granularity: is.optional(is.passed()),
    pipelined: is.optional(is.flag()),
    missingOnly: is.optional(is.flag()),
  } satisfies Kinds<HandoffConfig>,
  'TKV_CONFIG',
);
const gatewayTable = optionTable(
  { tickUs: is.passed(), ttlUs: is.passed() } satisfies Kinds<GatewayTiming>,
  'TKV_CONFIG',
);
const scalingTable = optionTable(
  {
    configId: is.passed(),
    scaler: is.passed(),
    replicas: is.passed(),
    capacityTokens: is.passed(),
    targets: is.optional(is.passed()),
  } satisfies Kinds<ScalingSetup>,
  'TKV_CONFIG',
);

/** @throws TKV_CONFIG for a name that a setup does not have, with the nearest one */
function checkSetup(setup: SimulationSetup): void {
  simulationSetupTable.read(setup, 'setup');
  const { handoff, gateway } = simulationTable.read(setup.options);
  handoffTable.read(handoff, 'handoff');
  if (gateway !== undefined) gatewayTable.read(gateway, 'gateway');
  for (const one of setup.scaling ?? []) scalingTable.read(one, 'scaling');
}

/** Whether only a preemption could look a block up. */
function isPlain({ deployment, workload }: SimulationSetup): boolean {
  const alone = deployment.pools.every(({ engine, role }) => {
    return role === 'monolithic' && engine.lowerTiers.length === 0 && engine.adapters === undefined;
  });
  return alone && workload.sharesNothing === true;
}

/** A simulation before its first event. @throws TKV_CONFIG with the field at fault */
export function newSimulation(setup: SimulationSetup): Simulation {
  return Simulation.begin(partsOf(setup));
}

/**
 * A simulation that goes on from a snapshot of one of the same setup, for instance of another thread.
 * @throws TKV_MISMATCH for a snapshot of another version or key
 */
export function resumeSimulation(setup: SimulationSetup, snapshot: SnapshotData): Simulation {
  simulationSetupTable.read(setup, 'setup');
  return Simulation.resume(partsOf({ ...setup, skipsKeys: false }), snapshot);
}

/**
 * In order of the pools.
 * @throws TKV_CONFIG for one that fits no pool, or a pool that others share a name with
 */
function checkScaling(pools: readonly PoolConfig[], scaling: readonly ScalingSetup[]): ScalingSetup[] {
  const at = scaling.map(({ configId, replicas }) => {
    const named = pools.filter((pool) => pool.configId === configId);
    if (named.length !== 1) {
      const what = named.length === 0 ? 'fits no pool' : `${named.length} pools are called`;
      throw configError(
        'scaling.configId',
        `names "${configId}", which ${what}`,
        'Name one of the pools, each with its own name.',
      );
    }
    if (scaling.filter((other) => other.configId === configId).length > 1) {
      throw configError('scaling.configId', `names "${configId}" twice`, 'Give a pool one autoscaler.');
    }
    const [pool] = named;
    if (replicas.current !== pool.replicas) {
      const problem = `is ${pool.replicas}, and its autoscaler begins with ${replicas.ready}`;
      throw configError(`${configId}.replicas`, problem, 'Begin with as many as there are.');
    }
    return pools.indexOf(pool);
  });
  return scaling
    .map((setup, i) => ({ setup, pool: at[i] }))
    .sort((a, b) => a.pool - b.pool)
    .map(({ setup }) => setup);
}

function partsOf(setup: SimulationSetup): SimulationParts {
  checkSetup(setup);
  const { pools } = checkDeployment(setup.deployment);
  const makeEngine: MakeEngine =
    setup.makeEngine ??
    (({ engine }, timeline, woken, share) => new SchedulerEngine(engine, timeline, woken, null, share));
  const { shared } = pools[0].engine;
  const scaling = checkScaling(pools, setup.scaling ?? []);
  return {
    key: setup.key ?? keyOfSeed(1n),
    workload: setup.workload,
    options: setup.options,
    pools: pools.map(({ configId, role, model }) => ({ configId, role, model })),
    instances: pools.flatMap(({ replicas }, pool) => new Array<number>(replicas).fill(pool)),
    control: setup.control,
    keys: new PromptKeys(pools[0].engine.blockTokens, setup.skipsKeys === true && isPlain(setup)),
    ...(scaling.length === 0 ? {} : { scaling }),
    ...(setup.observer === undefined ? {} : { observer: setup.observer }),
    ...(setup.forced === undefined ? {} : { forced: setup.forced }),
    ...(shared === undefined ? {} : { shared }),
    makeInstance(number, poolNumber, table, host, timeline, server) {
      const pool = pools[poolNumber];
      const { configId, role, model, latency, limits } = pool;
      const wake = { instance: null as Instance | null };
      const { blockBytes, ranks = 1 } = pool.engine;
      const space = `${model}/${ranks}x${blockBytes}/`;
      const share = server === null ? null : { server, space, ranks };
      const engine = makeEngine(pool, timeline, () => wake.instance?.wake(timeline.nowUs), share);
      const { blockTokens } = pool.engine;
      const id = `instance_${number}`;
      const config = { id, role, model, configId, blockTokens, latency, limits };
      wake.instance = new Instance(number, config, engine, table, host);
      return wake.instance;
    },
  };
}
