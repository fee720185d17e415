/** The autoscaler of a policy bundle, with what options change of it. */

import type { BoundBundle } from '../../../evolve/binding/index.ts';
import { configError } from '../../../runtime/errors.ts';
import type { ScalingSetup, SimulationKey } from '../../../sim/cluster/index.ts';
import { AutoScaler, noTriggers, type PolicyWorld, Replicas } from '../../../sim/control/index.ts';
import type { EngineConfig, InstanceLimits } from '../../../sim/instance/index.ts';
import { PartitionedRandom } from '../../../sim/random/index.ts';
import type { Bundle, NodePool } from './bundle.ts';
import type { EngineHardware } from './latency.ts';
import { whole, wholeOption } from './numbers.ts';
import type { Options } from './options.ts';

/** Most replicas where no node pool bounds them. */
const REPLICAS_MAX = 64;

/** Instances that the nodes of the start hold: one lies on one node, of its kind of GPU. */
function roomOf(nodePools: readonly NodePool[], machine: EngineHardware): number {
  const { name, aliases } = machine.hardware;
  const names = [name, ...aliases].map((each) => each.toLowerCase());
  let room = 0;
  for (const { gpuType, nodes, gpusPerNode } of nodePools) {
    if (gpuType !== '' && !names.includes(gpuType.toLowerCase())) continue;
    room += nodes * Math.floor(gpusPerNode / (machine.tp * machine.dp));
  }
  return room;
}

/**
 * How replicas come and go: with an autoscaler, and where instances of the start have to load their model.
 * @param own policy of a policy bundle of ours, instead of upstream's
 * @returns undefined without an autoscaler, or with an interval of 0, where all are ready from the start
 */
export function scalingSetup(
  options: Options,
  bundle: Bundle,
  machine: EngineHardware,
  engine: EngineConfig,
  limits: InstanceLimits,
  replicas: number,
  key: SimulationKey,
  own?: BoundBundle['scaling'],
): ScalingSetup | undefined {
  const { autoscaler, nodePools, loadingDelayS = [0, 0] } = bundle;
  const pollIntervalUs = wholeOption(options, 'modelAutoscalerIntervalUs', 0) ?? autoscaler?.intervalUs ?? 0;
  const scales = pollIntervalUs > 0;
  // upstream's instances load their model where nodes are named
  const isCold = nodePools !== undefined && bundle.warmStart !== true && loadingDelayS.some((s) => s > 0);
  const most = nodePools === undefined ? REPLICAS_MAX : roomOf(nodePools, machine);
  if (replicas > most && (scales || nodePools !== undefined)) {
    const count = machine.tp * machine.dp;
    const each = `${count} ${count === 1 ? 'GPU' : 'GPUs'} of ${machine.hardware.name} on one node each`;
    const holders = nodePools === undefined ? 'an autoscaler keeps' : `the node pools (${each}) hold`;
    const problem = `is ${replicas}, and ${holders} ${most} of them`;
    throw configError('--num-instances', problem, 'Lower it, or give node_pools more initial_nodes.');
  }
  if (!scales && !isCold) return undefined;
  if (whole(options, 'prefillInstances', 0) + whole(options, 'decodeInstances', 0) > 0) {
    const option = scales && autoscaler === undefined ? '--model-autoscaler-interval-us' : '--policy-config';
    const problem = scales
      ? 'asks for an autoscaler and does not say which role it scales'
      : 'has instances load their model (instance_lifecycle), and there are roles';
    const pools =
      'pools with role, replicas: {min: 1, max: 4} and autoscaling, and pass it with --deployment';
    throw configError(option, problem, `Write a YAML file with ${pools}, or leave out the roles.`);
  }
  const { kvThreshold = 0.8, upThreshold = 0.8, downBoundary = 0.4, inputTokens = 512 } = autoscaler ?? {};
  const world = (seed: bigint): PolicyWorld => ({
    blockTokens: engine.blockTokens,
    maxSequences: limits.maxSequences,
    stream: (name: string) => new PartitionedRandom(seed).stream(name),
  });
  const ofBundle = {
    policy: 'token-capacity',
    kvThreshold,
    upThreshold,
    downBoundary,
    promptTokens: inputTokens,
  };
  const bounds = scales ? { min: 1, max: most } : { min: replicas, max: replicas };
  const makesOwn = typeof own === 'function' ? own : undefined;
  const policy = typeof own === 'object' ? own : makesOwn === undefined ? ofBundle : { policy: 'none' };
  const scaler = new AutoScaler(
    {
      policy,
      mode: 'periodic',
      pollIntervalUs: scales ? pollIntervalUs : 1,
      minReplicas: bounds.min,
      maxReplicas: bounds.max,
      upWindowUs: autoscaler?.upWindowUs ?? 0,
      downWindowUs: autoscaler?.downWindowUs ?? 0,
      triggers: noTriggers,
    },
    world(key.simulationSeed),
    makesOwn,
  );
  const seconds = ([mean, stddev]: readonly [number, number]): { meanUs: number; stddevUs: number } => ({
    meanUs: mean * 1e6,
    stddevUs: stddev * 1e6,
  });
  const actuation = {
    decisionDelay: seconds(autoscaler?.delayS ?? [0, 0]),
    provisioningDelay: { meanUs: 0, stddevUs: 0 },
    modelLoadTime: seconds(loadingDelayS),
    warmup: { durationUs: 0, curve: 'step', initialPenaltyFactor: 1 },
    drain: { mode: 'wait', drainTimeoutUs: 0 },
  } as const;
  return {
    configId: 'default',
    scaler,
    replicas: new Replicas(actuation, bounds, replicas, world(key.jitterSeed), isCold ? 'cold' : 'warm'),
    capacityTokens: engine.hbmBlocks * engine.blockTokens,
  };
}
