/** From the options of `tierkv simulate` to a simulation that is ready to run. */

import { configError } from '../../runtime/errors.ts';
import { type Conservation, handoffGranularities } from '../../sim/cluster/index.ts';
import type { Role } from '../../sim/control/index.ts';
import { type Deployment, newSimulation, type PoolConfig } from '../../sim/deployment/index.ts';
import { KeysNeeded } from '../../sim/instance/index.ts';
import { withOptionNames } from '../process/index.ts';
import {
  type BuildExtras,
  type BuiltSimulation,
  controlPlane,
  optionNames,
  readsNoKeys,
  withPolicies,
} from './built.ts';
import { buildDeployed } from './deployment/index.ts';
import { controlSetup } from './input/control.ts';
import { engineSetup } from './input/engine.ts';
import { engineHardware, oneOf } from './input/latency.ts';
import { real, textOption, whole } from './input/numbers.ts';
import type { Options } from './input/options.ts';
import { scalingSetup } from './input/scaling.ts';
import { goodputTargets } from './input/targets.ts';
import { openSimulation } from './input/workload.ts';
import { simulationKey } from './key.ts';

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
  if (options.deployment !== undefined) return buildDeployed(trace, options, extras);
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
    const scaler = scalingSetup(options, bundle, machine, engine, limits, replicas, key, bound?.scaling);
    const targets = goodputTargets(options, opened.spec);
    const scaling = scaler === undefined ? [] : [{ ...scaler, targets }];
    const granularity = textOption(options, 'pdTransferGranularity') ?? 'request';
    const makeEngine = extras.makeEngine ?? bound?.makeEngine;
    const simulation = newSimulation({
      key,
      deployment,
      workload: opened.workload,
      control: controlPlane(control, key, engine.blockTokens, limits.maxSequences, bound),
      options: {
        horizonUs: opened.horizonUs,
        admissionLatencyUs: whole(options, 'admissionLatency', 0, 1e12),
        routingLatencyUs: whole(options, 'routingLatency', 0, 1e12),
        lastTokenInContext: options.asUpstream !== true,
        handoff: {
          baseLatencyUs: 1000 * real(options, 'pdTransferBaseLatency', 0, 1e9),
          bandwidthBytesPerS: 1e9 * real(options, 'pdTransferBandwidth', 1e-9, 1e9),
          granularity: oneOf('--pd-transfer-granularity', granularity, handoffGranularities),
          pipelined: options.pdTransferPipelined === true,
        },
        ...(gateway === null ? {} : { gateway }),
      },
      scaling,
      ...parts,
      ...(makeEngine === undefined ? {} : { makeEngine }),
      skipsKeys: (extras.skipsKeys ?? true) && bound === undefined && readsNoKeys(control),
    });
    const scheduler = engine.scheduler.queueOrder ?? 'fcfs';
    const gpus = (): number => simulation.instances.length * machine.tp * machine.dp;
    return { simulation, opened, deployment, machine, scaling, scheduler, options, gpus };
  });
}
