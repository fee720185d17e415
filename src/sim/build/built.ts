/** A simulation that is ready to run, and the parts that all ways to build one share. */

import type { SchedulerConfig } from '../../runtime/batching/config.ts';
import type { EvictionChoice } from '../../runtime/eviction/evictionPolicy.ts';
import {
  type ForcedDecisions,
  policiesName,
  type SimulationKey,
  type SimulationObserver,
} from '../cluster/parts.ts';
import type { ScalingSetup } from '../cluster/scaling.ts';
import type { Simulation } from '../cluster/simulation.ts';
import type { ControlConfig } from '../control/controlPlane.ts';
import { type MadePolicies, PolicyControlPlane } from '../control/plane.ts';
import type { PolicyChoice, PolicyWorld } from '../control/policy.ts';
import type { AutoScalePolicy, ScalingActuationConfig } from '../control/scaling/autoScalePolicy.ts';
import {
  AutoScaler,
  type AutoScalerConfig,
  type ReplicaStart,
  Replicas,
} from '../control/scaling/autoScaler.ts';
import type { Fleet, MakeEngine, PoolConfig } from '../description/deployment.ts';
import { type Deployment, get } from '../description/settings.ts';
import type { WorkloadSpec } from '../description/workloadSpec.ts';
import type { EngineConfig } from '../instance/engine.ts';
import type { TargetsByClass } from '../metrics/statistics.ts';
import { PartitionedRandom } from '../random/goRand.ts';
import type { EngineHardware } from './engineSettings.ts';
import type { OpenedSimulation } from './workloadSettings.ts';

export interface BuiltSimulation {
  readonly simulation: Simulation;
  readonly opened: OpenedSimulation;
  readonly fleet: Fleet;
  readonly machine: EngineHardware;
  /** Pools whose replicas come and go. */
  readonly scaling: readonly ScalingSetup[];
  /** Name of the order in which requests wait. */
  readonly scheduler: string;
  /** The deployment as asked for, completed by what a deployment file says of the workload. */
  readonly deployment: Deployment;
  /** Control plane as configured, without policies of a bundle. */
  readonly control: ControlConfig;
  readonly planned: readonly PlannedScaling[];
  /** Pools of a deployment file, each with the settings that follow from it. */
  readonly pools?: readonly BuiltPool[];
  /** GPUs of all instances, the autoscaler's included. */
  gpus(): number;
}

/** A pool of a deployment file. */
export interface BuiltPool {
  readonly name: string;
  readonly machine: EngineHardware;
  readonly config: PoolConfig;
  readonly deployment: Deployment;
}

/** How replicas of a pool come and go, as plain data. */
export interface PlannedScaling {
  readonly configId: string;
  readonly scaler: AutoScalerConfig;
  readonly actuation: ScalingActuationConfig;
  readonly bounds: { readonly min: number; readonly max: number };
  /** Replicas of the start. */
  readonly replicas: number;
  readonly start: ReplicaStart;
  readonly capacityTokens: number;
  readonly blockTokens: number;
  readonly maxSequences: number;
  /** Suffix of the names of its random streams, so that each of several pools draws its own delays. */
  readonly suffix: string;
}

/** Policies that replace those of the settings, as a policy bundle has them. */
export interface BoundPolicies {
  /** Hash of what decides. */
  readonly policyId: string;
  /** Policies by name. */
  readonly control: Partial<Pick<ControlConfig, 'admission' | 'priority' | 'routing'>>;
  /** Policies that are programs or trees. They replace policies by name. */
  readonly policies: MadePolicies;
  readonly scheduler: SchedulerConfig;
  /** Undefined where eviction is left alone. */
  readonly eviction: EvictionChoice | undefined;
  /** The scaling policy, by name or made; undefined where nothing is scaled. */
  readonly scaling: PolicyChoice | ((world: PolicyWorld) => AutoScalePolicy) | undefined;
  /** Undefined for the plain engine. */
  readonly makeEngine: MakeEngine | undefined;
}

/** @param own policy of a policy bundle; it replaces the planned one */
export function makeScaling(
  planned: PlannedScaling,
  key: Pick<SimulationKey, 'simulationSeed' | 'jitterSeed'>,
  targets: TargetsByClass,
  own?: BoundPolicies['scaling'],
): ScalingSetup {
  const { configId, scaler, actuation, bounds, replicas, start, capacityTokens, suffix } = planned;
  const world = (seed: bigint): PolicyWorld => ({
    blockTokens: planned.blockTokens,
    maxSequences: planned.maxSequences,
    stream: (name) => new PartitionedRandom(seed).stream(name + suffix),
  });
  const makesOwn = typeof own === 'function' ? own : undefined;
  const config = typeof own === 'object' ? { ...scaler, policy: own } : scaler;
  return {
    configId,
    scaler: new AutoScaler(config, world(key.simulationSeed), makesOwn),
    replicas: new Replicas(actuation, bounds, replicas, world(key.jitterSeed), start),
    capacityTokens,
    targets,
  };
}

export interface BuildExtras {
  /** Policies of a bundle; they replace those of the options. */
  readonly bundle?: BoundPolicies;
  /** Changes a specification before requests are generated from it. */
  readonly adjust?: (spec: WorkloadSpec) => WorkloadSpec;
  readonly observer?: SimulationObserver;
  readonly makeEngine?: MakeEngine;
  /** Decisions that are forced, whatever the policies say. */
  readonly forced?: ForcedDecisions;
  /** Default true. */
  readonly skipsKeys?: boolean;
}

/** The control plane as configured; slots of a bundle replace its policies. */
export function controlPlane(
  config: ControlConfig,
  { simulationSeed }: SimulationKey,
  blockTokens: number,
  maxSequences: number,
  bundle: BoundPolicies | undefined,
): PolicyControlPlane {
  return new PolicyControlPlane(
    { ...config, ...bundle?.control },
    {
      key: simulationSeed,
      blockTokens,
      maxSequences,
      ...(bundle === undefined ? {} : { policies: bundle.policies }),
    },
  );
}

/** The engine with the scheduler and the eviction of a bundle. */
export function withPolicies(engine: EngineConfig, { scheduler, eviction }: BoundPolicies): EngineConfig {
  return {
    ...engine,
    scheduler: { ...engine.scheduler, ...scheduler },
    ...(eviction === undefined ? {} : { eviction }),
  };
}

//  The key of a simulation: its policies by name, and the seeds of what is drawn.

/** @param policies everything that decides, as plain data */
export function simulationKey(
  deployment: Deployment,
  { seed, spec }: OpenedSimulation,
  policies: readonly unknown[],
): SimulationKey {
  return {
    policies: policiesName(...policies),
    workloadSeed: spec?.seed ?? seed,
    simulationSeed: get(deployment, 'simulationSeed') ?? seed,
    jitterSeed: get(deployment, 'jitterSeed') ?? seed,
  };
}
