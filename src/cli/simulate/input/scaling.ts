/** The autoscaler of a policy bundle, with what options change of it. */

import type { BoundBundle } from '../../../evolve/binding/index.ts';
import { configError } from '../../../runtime/errors.ts';
import type { ScalingSetup, SimulationKey } from '../../../sim/cluster/index.ts';
import { AutoScaler, noTriggers, type PolicyWorld, Replicas } from '../../../sim/control/index.ts';
import type { EngineConfig, InstanceLimits } from '../../../sim/instance/index.ts';
import { PartitionedRandom } from '../../../sim/random/index.ts';
import type { Bundle } from './bundle.ts';
import type { EngineHardware } from './latency.ts';
import { whole, wholeOption } from './numbers.ts';
import type { Options } from './options.ts';

/** Most replicas where no node pool bounds them. */
const REPLICAS_MAX = 64;

/**
 * @param own policy of a policy bundle of ours, instead of upstream's
 * @returns undefined without an autoscaler, or with an interval of 0
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
  const { autoscaler, gpus, loadingDelayS = [0, 0] } = bundle;
  const pollIntervalUs = wholeOption(options, 'modelAutoscalerIntervalUs', 0) ?? autoscaler?.intervalUs ?? 0;
  if (pollIntervalUs === 0) return undefined;
  if (whole(options, 'prefillInstances', 0) + whole(options, 'decodeInstances', 0) > 0) {
    const option = autoscaler === undefined ? '--model-autoscaler-interval-us' : '--policy-config';
    const problem = 'asks for an autoscaler and does not say which role it scales';
    const pools =
      'pools with role, replicas: {min: 1, max: 4} and autoscaling, and pass it with --deployment';
    throw configError(option, problem, `Write a YAML file with ${pools}, or leave out the roles.`);
  }
  const most = gpus === undefined ? REPLICAS_MAX : Math.floor(gpus / (machine.tp * machine.dp));
  if (replicas > most) {
    const problem = `is ${replicas}, and the node pools hold ${most} of them`;
    throw configError('--num-instances', problem, 'Lower it, or give the pools more nodes.');
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
  const makesOwn = typeof own === 'function' ? own : undefined;
  const policy = typeof own === 'object' ? own : makesOwn === undefined ? ofBundle : { policy: 'none' };
  const scaler = new AutoScaler(
    {
      policy,
      mode: 'periodic',
      pollIntervalUs,
      minReplicas: 1,
      maxReplicas: most,
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
    replicas: new Replicas(actuation, { min: 1, max: most }, replicas, world(key.jitterSeed)),
    capacityTokens: engine.hbmBlocks * engine.blockTokens,
  };
}
