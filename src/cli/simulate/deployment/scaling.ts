/**
 * Autoscaling of a deployment file: of each pool that scales the policy, when it looks, and how long replicas
 * take to come and go. What a pool says goes before what the file says for all of them.
 */

import type { BoundBundle } from '../../../evolve/binding/index.ts';
import type { ScalingSetup, SimulationKey } from '../../../sim/cluster/index.ts';
import {
  AutoScaler,
  type DelayDistribution,
  drainModes,
  noTriggers,
  type PolicyWorld,
  Replicas,
  type ScaleTriggers,
  type ScalingActuationConfig,
  warmupCurves,
} from '../../../sim/control/index.ts';
import type { TargetsByClass } from '../../../sim/metrics/index.ts';
import { PartitionedRandom } from '../../../sim/random/index.ts';
import type { SpecNode } from '../../../sim/workload/spec/reader.ts';
import { placeIn, readPolicy } from './control.ts';
import { inFile } from './fields.ts';
import type { DeployedPool } from './pools.ts';

const time = { min: 0, max: 1e12 };
/** How often an autoscaler looks: at its policy, or with `event` at its triggers, which are to be seen soon. */
const POLL_US = { periodic: 30_000_000, event: 1_000_000 } as const;

/** What autoscalers need beside their mapping in the file. */
export interface ScalingWorld {
  readonly key: SimulationKey;
  readonly targets: TargetsByClass;
  /** Policy of a policy bundle, which goes before those of the file. */
  readonly own?: BoundBundle['scaling'];
}

/** @returns one for each pool that scales, in order of the pools */
export function readScaling(
  root: SpecNode,
  pools: readonly DeployedPool[],
  world: ScalingWorld,
): ScalingSetup[] {
  const forAll = root.section('autoscaling');
  const isOnly = pools.length === 1;
  let isUsed = false;
  const setups = pools.flatMap((pool): ScalingSetup[] => {
    const { name, bounds, autoscaling, node } = pool;
    const hasRoom = bounds.min < bounds.max;
    if (autoscaling !== undefined && !hasRoom) {
      const problem = `has no room, since replicas are ${bounds.min}`;
      throw node.error('autoscaling', problem, 'Write replicas: {min: 1, max: 4}, or leave it out');
    }
    const said = autoscaling ?? (hasRoom || isOnly ? forAll : undefined);
    if (said === undefined) {
      if (!hasRoom) return [];
      const problem = `gives "${name}" room to scale, and there is no autoscaling`;
      throw root.error('pools', problem, 'Add autoscaling to it or for all, or say replicas as a number');
    }
    isUsed ||= said === forAll;
    // a pool among others draws delays of its own
    const setup = readSetup(said, pool, world, isOnly ? '' : ` ${name}`);
    autoscaling?.close();
    return [setup];
  });
  if (forAll !== undefined && !isUsed) {
    const problem = 'is of no pool: each has its own, or no room to scale';
    throw root.error('autoscaling', problem, 'Write replicas: {min: 1, max: 4} in a pool, or leave it out');
  }
  forAll?.close();
  return setups;
}

/** @param suffix of the names of its random streams */
function readSetup(
  node: SpecNode,
  { name, bounds, config }: DeployedPool,
  { key, targets, own }: ScalingWorld,
  suffix: string,
): ScalingSetup {
  const mode = node.choice('mode', ['periodic', 'event'], 'periodic');
  const policyNode = node.section('policy');
  if (policyNode === undefined) throw node.error('policy', 'is missing', 'Write policy: {policy: hpa}');
  const makesOwn = typeof own === 'function' ? own : undefined;
  const named = typeof own === 'object' ? own : undefined;
  const policy = named ?? readPolicy(policyNode);
  const world = (seed: bigint): PolicyWorld => ({
    blockTokens: config.engine.blockTokens,
    maxSequences: config.limits.maxSequences,
    stream: (stream) => new PartitionedRandom(seed).stream(stream + suffix),
  });
  const scaler = inFile(
    (field) => placeIn(policyNode, field),
    () =>
      new AutoScaler(
        {
          policy,
          mode,
          pollIntervalUs: node.integer('poll_interval_us', { min: 1, max: 1e12 }, POLL_US[mode]),
          minReplicas: bounds.min,
          maxReplicas: bounds.max,
          upWindowUs: node.integer('up_window_us', time, 0),
          downWindowUs: node.integer('down_window_us', time, 0),
          triggers: readTriggers(node.section('triggers')),
        },
        world(key.simulationSeed),
        makesOwn,
      ),
  );
  const start = node.flag('warm_start') === false ? 'cold' : 'warm';
  const replicas = new Replicas(readActuation(node), bounds, config.replicas, world(key.jitterSeed), start);
  const capacityTokens = config.engine.hbmBlocks * config.engine.blockTokens;
  return { configId: name, scaler, replicas, capacityTokens, targets };
}

function readTriggers(node: SpecNode | undefined): ScaleTriggers {
  if (node === undefined) return noTriggers;
  const triggers: ScaleTriggers = {
    queueDepth: node.number('queue_depth', { min: 0 }, noTriggers.queueDepth),
    sloAttainment: node.number('slo_attainment', { min: 0, max: 1 }, noTriggers.sloAttainment),
    utilizationHigh: node.number('utilization_high', { min: 0, max: 1 }, noTriggers.utilizationHigh),
    utilizationLow: node.number('utilization_low', { min: 0, max: 1 }, noTriggers.utilizationLow),
    rateChange: node.number('rate_change', { above: 1 }, noTriggers.rateChange),
    sustainedUs: node.integer('sustained_us', time, 0),
  };
  node.close();
  return triggers;
}

function readDelay(node: SpecNode, key: string): DelayDistribution {
  const section = node.section(key);
  const delay = {
    meanUs: section?.number('mean_us', time, 0) ?? 0,
    stddevUs: section?.number('stddev_us', time, 0) ?? 0,
  };
  section?.close();
  return delay;
}

function readActuation(node: SpecNode): ScalingActuationConfig {
  const warmup = node.section('warmup');
  const drain = node.section('drain');
  const actuation: ScalingActuationConfig = {
    decisionDelay: readDelay(node, 'decision_delay'),
    provisioningDelay: readDelay(node, 'provisioning_delay'),
    modelLoadTime: readDelay(node, 'model_load_time'),
    warmup: {
      durationUs: warmup?.integer('duration_us', time, 0) ?? 0,
      curve: warmup?.choice('curve', warmupCurves, 'linear') ?? 'linear',
      initialPenaltyFactor: warmup?.number('initial_penalty_factor', { min: 1, max: 1000 }, 1) ?? 1,
    },
    drain: {
      mode: drain?.choice('mode', drainModes, 'wait') ?? 'wait',
      drainTimeoutUs: drain?.integer('timeout_us', time, 0) ?? 0,
    },
  };
  warmup?.close();
  drain?.close();
  return actuation;
}
