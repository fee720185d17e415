/** From the options of `tierkv simulate` to a simulation that is ready to run. */

import type { BoundBundle } from '../../evolve/binding/index.ts';
import { configError } from '../../runtime/errors.ts';
import type {
  Conservation,
  ForcedDecisions,
  Simulation,
  SimulationObserver,
} from '../../sim/cluster/index.ts';
import { type ControlConfig, PolicyControlPlane, type Role } from '../../sim/control/index.ts';
import {
  type Deployment,
  type MakeEngine,
  newSimulation,
  type PoolConfig,
} from '../../sim/deployment/index.ts';
import { type EngineConfig, KeysNeeded } from '../../sim/instance/index.ts';
import type { WorkloadSpec } from '../../sim/workload/index.ts';
import { withOptionNames } from '../process/index.ts';
import { controlSetup } from './input/control.ts';
import { engineSetup } from './input/engine.ts';
import { type EngineHardware, engineHardware } from './input/latency.ts';
import { real, whole } from './input/numbers.ts';
import type { Options } from './input/options.ts';
import { scalingSetup } from './input/scaling.ts';
import { type OpenedSimulation, openSimulation } from './input/workload.ts';
import { simulationKey } from './key.ts';

/** The options behind the names that the library gives to what it checks. */
const optionNames: Readonly<Record<string, string>> = {
  tp: '--tp',
  dp: '--dp',
  model: '--model',
  GPU: '--hardware',
  blockTokens: '--block-size-in-tokens',
  memoryUtilization: '--gpu-memory-utilization',
  hbmBlocks: '--total-kv-blocks',
  'ddr.blocks': '--kv-cpu-blocks',
  maxBatchedTokens: '--max-num-batched-tokens',
  maxSequences: '--max-num-seqs',
  longPrefillTokens: '--long-prefill-token-threshold',
  replicas: '--num-instances',
  'default.replicas': '--num-instances',
};

export interface BuiltSimulation {
  readonly simulation: Simulation;
  readonly opened: OpenedSimulation;
  readonly deployment: Deployment;
  readonly machine: EngineHardware;
  /** Name of the order in which requests wait. */
  readonly scheduler: string;
}

export interface BuildExtras {
  /** Policies of a bundle; they go before those of the options. */
  readonly bundle?: BoundBundle;
  /** Changes a specification before requests are generated from it. */
  readonly adjust?: (spec: WorkloadSpec) => WorkloadSpec;
  readonly observer?: SimulationObserver;
  readonly makeEngine?: MakeEngine;
  /** Decisions that are taken out of the policies' hands. */
  readonly forced?: ForcedDecisions;
  /** Default true. */
  readonly skipsKeys?: boolean;
}

/** Whether the control plane decides without looking at the blocks of a prompt. */
function readsNoKeys({ routing, shadow, decider }: ControlConfig): boolean {
  const plain = ['round-robin', 'least-loaded', 'always-busiest', 'llq', 'lor'];
  return plain.includes(routing.policy) && shadow.model === 'none' && decider.policy === 'never';
}

/** The engine with the scheduler and the eviction of a bundle. */
function withPolicies(engine: EngineConfig, { scheduler, eviction }: BoundBundle): EngineConfig {
  return {
    ...engine,
    scheduler: { ...engine.scheduler, ...scheduler },
    ...(eviction === undefined ? {} : { eviction }),
  };
}

/** Instances by role: prefill first, then decode, then those that do all. */
function poolsOf(options: Options): [Role, number][] {
  const total = whole(options, 'numInstances', 1, 1024);
  const prefill = whole(options, 'prefillInstances', 0, 1024);
  const decode = whole(options, 'decodeInstances', 0, 1024);
  const shared = whole(options, 'prefillDecodeInstances', 0, 1024);
  const named = prefill + decode + shared;
  if (named === 0) return [['monolithic', total]];
  if (named !== total) {
    const problem = `is ${total}, and the roles come to ${named}`;
    throw configError('--num-instances', problem, 'Give every instance one role.');
  }
  if ((prefill === 0) !== (decode === 0) && shared === 0) {
    const missing = prefill === 0 ? '--prefill-instances' : '--decode-instances';
    throw configError(missing, 'is 0, and the other role is not', 'Deploy both, or neither.');
  }
  const pools: [Role, number][] = [
    ['prefill', prefill],
    ['decode', decode],
    ['monolithic', shared],
  ];
  return pools.filter(([, count]) => count > 0);
}

/** Runs a simulation to its end, if need be a second time with the block keys that the first left out. */
export function runToEnd(
  build: (skipsKeys: boolean) => BuiltSimulation,
  progress: (built: BuiltSimulation) => (requests: number, nowUs: number) => void = () => () => {},
): BuiltSimulation & { readonly conservation: Conservation } {
  for (let skipsKeys = true; ; skipsKeys = false) {
    const built = build(skipsKeys);
    try {
      built.simulation.run(progress(built));
      return { ...built, conservation: built.simulation.close() };
    } catch (error) {
      if (!(error instanceof KeysNeeded) || !skipsKeys) throw error;
    }
  }
}

/** @throws {TierKVError} for anything unknown or out of range, in the words of the options */
export function buildSimulation(
  trace: string | undefined,
  options: Options,
  extras: BuildExtras = {},
): BuiltSimulation {
  return withOptionNames(optionNames, () => {
    const { bundle: bound, adjust, ...parts } = extras;
    const machine = engineHardware(options);
    const { control, gateway, bundle } = controlSetup(options);
    const { engine: plain, limits } = engineSetup(options, machine, bundle);
    const engine = bound === undefined ? plain : withPolicies(plain, bound);
    const pool = (role: Role, replicas: number): PoolConfig => {
      const { latency } = machine;
      return { configId: 'default', role, model: '', replicas, engine, latency, limits };
    };
    const deployment: Deployment = { pools: poolsOf(options).map(([role, count]) => pool(role, count)) };
    const opened = openSimulation(trace, options, adjust);
    const replicas = deployment.pools.reduce((sum, { replicas: count }) => sum + count, 0);
    const policies = [
      control,
      engine.scheduler,
      engine.eviction,
      bundle.autoscaler ?? null,
      bound?.policyId ?? null,
    ];
    const key = simulationKey(options, opened, policies);
    const scaling = scalingSetup(options, bundle, machine, engine, limits, replicas, key, bound?.scaling);
    const makeEngine = extras.makeEngine ?? bound?.makeEngine;
    const simulation = newSimulation({
      key,
      deployment,
      workload: opened.workload,
      control: new PolicyControlPlane(
        { ...control, ...bound?.control },
        {
          key: key.simulationSeed,
          blockTokens: engine.blockTokens,
          maxSequences: limits.maxSequences,
          ...(bound === undefined ? {} : { policies: bound.policies }),
        },
      ),
      options: {
        horizonUs: opened.horizonUs,
        admissionLatencyUs: whole(options, 'admissionLatency', 0, 1e12),
        routingLatencyUs: whole(options, 'routingLatency', 0, 1e12),
        lastTokenInContext: options.asUpstream !== true,
        handoff: {
          baseLatencyUs: 1000 * real(options, 'pdTransferBaseLatency', 0, 1e9),
          bandwidthBytesPerS: 1e9 * real(options, 'pdTransferBandwidth', 1e-9, 1e9),
        },
        ...(gateway === null ? {} : { gateway }),
      },
      ...(scaling === undefined ? {} : { scaling }),
      ...parts,
      ...(makeEngine === undefined ? {} : { makeEngine }),
      skipsKeys: (extras.skipsKeys ?? true) && bound === undefined && readsNoKeys(control),
    });
    const scheduler = engine.scheduler.queueOrder ?? 'fcfs';
    return { simulation, opened, deployment, machine, scheduler };
  });
}
