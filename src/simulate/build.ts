/** From the options of `tierkv simulate` to a simulation that is ready to run. */

import { readText } from '../files/inputs.ts';
import { configError, invariant } from '../runtime/errors.ts';
import type { Conservation } from '../sim/cluster/core.ts';
import { type HandoffConfig, handoffGranularities } from '../sim/cluster/handoffs.ts';
import { controlReadsKeys } from '../sim/control/plane.ts';
import type { Role } from '../sim/control/policy.ts';
import { type Deployment, newSimulation, type PoolConfig } from '../sim/description/deployment.ts';
import { readYaml, type SpecNode } from '../sim/description/fields.ts';
import { KeysNeeded } from '../sim/instance/simRequest.ts';
import {
  type BuildExtras,
  type BuiltSimulation,
  controlPlane,
  simulationKey,
  withPolicies,
} from './built.ts';
import { controlSetup, scalingSetup } from './controlOptions.ts';
import {
  applySettings,
  type DeployedPool,
  type DeployedWorkload,
  readControl,
  readPools,
  readScaling,
  readTargets,
  readWorkload,
} from './deployment.ts';
import { engineHardware, engineSetup, oneOf } from './engineOptions.ts';
import { optionNames, withOptionNames } from './optionNames.ts';
import { goodputTargets, real, textOption, whole } from './options.ts';
import type { OptionValues } from './optionTable.ts';
import { openSimulation } from './workloadOptions.ts';

/** Instances by role: prefill first, then decode, then instances that do all. */
function poolsOf(options: OptionValues): [Role, number][] {
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
  options: OptionValues,
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
      skipsKeys: (extras.skipsKeys ?? true) && bound === undefined && !controlReadsKeys(control),
    });
    const scheduler = engine.scheduler.queueOrder ?? 'fcfs';
    const gpus = (): number => simulation.instances.length * machine.tp * machine.dp;
    return { simulation, opened, deployment, machine, scaling, scheduler, options, gpus };
  });
}

// `--deployment FILE`: models, pools, control plane, autoscaling, workload and targets in one YAML file, read
// strictly. What the command line says of the workload, the seed and the targets goes before the file.

const VERSIONS = ['1'] as const;

/** @throws {TierKVError} naming file, line and key, or the option */
export function buildDeployed(
  trace: string | undefined,
  options: OptionValues,
  extras: BuildExtras = {},
): BuiltSimulation {
  const file = textOption(options, 'deployment');
  invariant(file !== undefined, 'a deployment was asked for');
  const text = applySettings(readText(file), file, textOption(options, 'set'));
  const root = readYaml(text, file);
  root.choice('version', VERSIONS);
  const { bundle: bound, adjust, ...parts } = extras;
  const pools = readPools(root, options);
  const deployed = readControl(root);
  const workload = readWorkload(root, file);
  const handoff = readHandoff(root);
  const said = { ...readTargets(root), ...readRun(root), ...defined(options) };
  const { opened, options: served } = openDeployed(trace, said, workload, adjust);
  const key = simulationKey(said, opened, [text, bound?.policyId ?? null]);
  const targets = goodputTargets(said, opened.spec);
  const own = bound?.scaling;
  const scaling = readScaling(root, pools, { key, targets, ...(own === undefined ? {} : { own }) });
  root.close();
  const deployment: Deployment = {
    pools: pools.map(({ config }) => {
      return bound === undefined ? config : { ...config, engine: withPolicies(config.engine, bound) };
    }),
  };
  const { blockTokens } = pools[0].config.engine;
  const maxSequences = Math.max(...pools.map(({ config }) => config.limits.maxSequences));
  const { control, gateway, admissionLatencyUs, routingLatencyUs } = deployed;
  const makeEngine = extras.makeEngine ?? bound?.makeEngine;
  const simulation = newSimulation({
    key,
    deployment,
    workload: opened.workload,
    control: controlPlane(control, key, blockTokens, maxSequences, bound),
    options: {
      horizonUs: opened.horizonUs,
      admissionLatencyUs,
      routingLatencyUs,
      lastTokenInContext: options.asUpstream !== true,
      handoff,
      ...(gateway === null ? {} : { gateway }),
    },
    scaling,
    ...parts,
    ...(makeEngine === undefined ? {} : { makeEngine }),
    skipsKeys: (extras.skipsKeys ?? true) && bound === undefined && !controlReadsKeys(control),
  });
  const gpusOf = ({ machine }: DeployedPool): number => machine.tp * machine.dp;
  return {
    simulation,
    opened,
    deployment,
    machine: pools[0].machine,
    scaling,
    scheduler: pools[0].config.engine.scheduler.queueOrder ?? 'fcfs',
    options: served,
    pools,
    gpus: () =>
      simulation.instances.reduce((sum, { configId }) => {
        const pool = pools.find(({ name }) => name === configId);
        return sum + (pool === undefined ? 0 : gpusOf(pool));
      }, 0),
  };
}

/** Options that were given or have a default. */
function defined(options: OptionValues): OptionValues {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** What a command line names goes before what the file has. */
function openDeployed(
  trace: string | undefined,
  options: OptionValues,
  { options: inFile, spec }: DeployedWorkload,
  adjust: BuildExtras['adjust'],
): { readonly opened: ReturnType<typeof openSimulation>; readonly options: OptionValues } {
  const names = [trace, options.workload, options.workloadSpec, options.traceData];
  const isNamed = names.some((name) => name !== undefined);
  const all = isNamed ? options : { ...inFile, ...options };
  return { opened: openSimulation(trace, all, adjust, isNamed ? undefined : spec), options: all };
}

function readRun(root: SpecNode): OptionValues {
  const options: Record<string, string> = {};
  if (root.has('seed')) options.seed = root.int64('seed', 0n).toString();
  if (root.has('horizon_us')) options.horizon = root.text('horizon_us');
  return options;
}

function readHandoff(root: SpecNode): HandoffConfig {
  const node = root.section('handoff');
  const handoff = {
    baseLatencyUs: node?.number('base_latency_us', { min: 0, max: 1e12 }, 50) ?? 50,
    bandwidthBytesPerS: 1e9 * (node?.number('bandwidth_gb_per_s', { above: 0, max: 1e9 }, 25) ?? 25),
    granularity: node?.choice('granularity', handoffGranularities, 'request') ?? 'request',
    pipelined: node?.flag('pipelined') ?? false,
  };
  if (node !== undefined && handoff.pipelined && handoff.granularity === 'request') {
    const problem = 'has nothing to send before the prompt is done with granularity request';
    throw node.error('pipelined', problem, 'Use chunk, block or stream');
  }
  node?.close();
  return handoff;
}
