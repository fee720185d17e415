/**
 * From options, or from a deployment file, to a simulation as plain data: names are looked up, files are read, values
 * are checked. A plan goes to threads and to other machines, and all that is left to read there is a recorded trace.
 * Whatever it was written as, one builder (`build.ts`) makes a simulation of it.
 */

import { isMap, isSeq, parseDocument } from 'yaml';
import { readText } from '../files/inputs.ts';
import { prefixNotice } from '../files/openWorkload.ts';
import { configError, TierKVError } from '../runtime/errors.ts';
import { type HandoffConfig, handoffGranularities } from '../sim/cluster/handoffs.ts';
import type { ControlConfig } from '../sim/control/controlPlane.ts';
import type { Role } from '../sim/control/policy.ts';
import type { PoolConfig } from '../sim/description/deployment.ts';
import { readYaml, type SpecNode } from '../sim/description/fields.ts';
import type { PlannedScaling } from './built.ts';
import { controlSetup, type PolicyFile, planScaling } from './controlOptions.ts';
import {
  type DeployedWorkload,
  readControl,
  readPools,
  readScaling,
  readTargets,
  readWorkload,
} from './deployment.ts';
import { engineHardware, engineSetup, oneOf, type PlannedMachine } from './engineOptions.ts';
import { cutOffTiers, idleFields } from './idleFields.ts';
import { optionNames, withOptionNames } from './optionNames.ts';
import { real, textOption, whole, wholeOption } from './options.ts';
import { flagOf, type OptionValues } from './optionTable.ts';
import { presetSpec } from './presetOptions.ts';
import { type PlannedWorkload, planWorkload } from './workloadOptions.ts';

/** A pool of equal instances: their configuration, and their number at the start. */
interface PlannedPool extends Omit<PoolConfig, 'latency'> {
  readonly machine: PlannedMachine;
  /** Options of a pool of a deployment file. */
  readonly options?: OptionValues;
}

export interface SimulationPlan {
  /** Source of the pools; those of a deployment file have names. */
  readonly source: 'options' | 'file';
  readonly pools: readonly PlannedPool[];
  readonly control: ControlConfig;
  /** Null without a gateway queue. */
  readonly gateway: { readonly tickUs: number; readonly ttlUs: number } | null;
  readonly admissionLatencyUs: number;
  readonly routingLatencyUs: number;
  readonly handoff: HandoffConfig;
  readonly scaling: readonly PlannedScaling[];
  readonly workload: PlannedWorkload;
  /** Values of the file of policies; empty for a deployment file. */
  readonly policyFile: PolicyFile;
  /** Part of the simulation's key: the text of the deployment file, or the autoscaler of the file of policies. */
  readonly named: unknown;
  /**
   * Every option with its value. Seed, targets, end and presets are read here when the simulation is made; the rest
   * says where a result comes from.
   */
  readonly options: OptionValues;
  /** Warnings about settings without effect, a sentence each. */
  readonly notices: readonly string[];
}

/**
 * @param trace the file that is named without an option
 * @throws {TierKVError} for anything unknown or out of range: naming the option, or file, line and key
 */
export function planSimulation(trace: string | undefined, options: OptionValues): SimulationPlan {
  const file = textOption(options, 'deployment');
  return file === undefined
    ? withOptionNames(optionNames, () => planOptions(trace, options))
    : planFile(file, trace, options);
}

/** The plan with another seed. Profiles of ServeGen are drawn when a plan is made, and so have to be planned again. */
export function withSeed(plan: SimulationPlan, seed: string): SimulationPlan {
  return { ...plan, options: { ...plan.options, seed } };
}

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

function planOptions(trace: string | undefined, options: OptionValues): SimulationPlan {
  const hardware = engineHardware(options);
  const { latency: _made, ...machine } = hardware;
  const { control, gateway, bundle } = controlSetup(options);
  const { engine, limits } = engineSetup(options, hardware, bundle);
  const pools = poolsOf(options).map(([role, replicas]): PlannedPool => {
    return { configId: 'default', role, model: '', replicas, engine, limits, machine };
  });
  const workload = planWorkload(trace, options);
  const replicas = pools.reduce((sum, pool) => sum + pool.replicas, 0);
  const scaling = planScaling(options, bundle, hardware, engine, limits, replicas);
  const granularity = textOption(options, 'pdTransferGranularity') ?? 'request';
  return {
    source: 'options',
    pools,
    control,
    gateway,
    admissionLatencyUs: whole(options, 'admissionLatency', 0, 1e12),
    routingLatencyUs: whole(options, 'routingLatency', 0, 1e12),
    handoff: {
      baseLatencyUs: 1000 * real(options, 'pdTransferBaseLatency', 0, 1e9),
      bandwidthBytesPerS: 1e9 * real(options, 'pdTransferBandwidth', 1e-9, 1e9),
      granularity: oneOf('--pd-transfer-granularity', granularity, handoffGranularities),
      pipelined: options.pdTransferPipelined === true,
      missingOnly: options.pdTransferMissing === true,
    },
    scaling: scaling === undefined ? [] : [scaling],
    workload,
    policyFile: bundle,
    named: bundle.autoscaler ?? null,
    options: { ...options, latencyModel: hardware.coefficients.backend },
    notices: [...silentWorkload(workload), ...cutOffTiers(pools)],
  };
}

/** What cannot be learned from a workload. */
function silentWorkload(workload: PlannedWorkload): string[] {
  const notice = workload.kind === 'trace' ? prefixNotice(workload.format) : undefined;
  return notice === undefined ? [] : [notice];
}

// `--deployment FILE`: models, pools, control plane, autoscaling, workload and targets in one YAML file, read
// strictly. What the command line says of the workload, the seed and the targets goes before the file.

const VERSIONS = ['1'] as const;

function planFile(file: string, trace: string | undefined, options: OptionValues): SimulationPlan {
  const text = applySettings(readText(file), file, textOption(options, 'set'));
  const root = readYaml(text, file);
  root.choice('version', VERSIONS);
  const pools = readPools(root, options);
  const { control, gateway, admissionLatencyUs, routingLatencyUs } = readControl(root);
  const deployed = readWorkload(root, file);
  const handoff = readHandoff(root);
  const said = { ...readTargets(root), ...readRun(root), ...defined(options) };
  const { workload, options: served } = planDeployed(trace, said, deployed);
  const scaling = readScaling(root, pools);
  root.close();
  const plannedPools = pools.map(
    ({ config: { latency: _made, ...config }, machine, options: own }): PlannedPool => {
      const { latency: _same, ...planned } = machine;
      return { ...config, machine: planned, options: own };
    },
  );
  return {
    source: 'file',
    pools: plannedPools,
    control,
    gateway,
    admissionLatencyUs,
    routingLatencyUs,
    handoff,
    scaling,
    workload,
    policyFile: {},
    named: text,
    options: served,
    notices: [
      ...silentWorkload(workload),
      ...idleFields(text, { control, pools: plannedPools, scaling }),
      ...cutOffTiers(plannedPools),
    ],
  };
}

/** Options that have a value. */
function defined(options: OptionValues): OptionValues {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** Plans a deployment file. Options of the command line override values of the file. */
function planDeployed(
  trace: string | undefined,
  options: OptionValues,
  { options: deployed, spec, inFile }: DeployedWorkload,
): { readonly workload: PlannedWorkload; readonly options: OptionValues } {
  const names = [trace, options.workload, options.workloadSpec, options.traceData];
  const isNamed = names.some((name) => name !== undefined);
  const all = isNamed ? options : { ...deployed, ...options };
  try {
    const workload = planWorkload(trace, all, isNamed ? undefined : spec);
    wholeOption(all, 'numRequests', 0);
    if (workload.kind === 'preset') presetSpec(all); // what is wrong in the file is said with its line
    return { workload, options: all };
  } catch (error) {
    const field = error instanceof TierKVError ? error.field : undefined;
    const isSaid = isNamed || Object.keys(options).some((name) => flagOf(name) === field);
    throw isSaid ? error : inFile(error);
  }
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
    missingOnly: node?.flag('missing_only') ?? false,
  };
  if (node !== undefined && handoff.pipelined && handoff.granularity === 'request') {
    const problem = 'has nothing to send before the prompt is done with granularity request';
    throw node.error('pipelined', problem, 'Use chunk, block or stream');
  }
  node?.close();
  return handoff;
}

//  `--set pools[0].replicas=4`: fields of a deployment file, changed before it is read.

/**
 * The text with the fields set. A field may be new, what it lies in may not.
 * @param settings as they were given, a line each
 * @throws TKV_CONFIG for a text that must be a setting, or names a place that the file lacks
 */
function applySettings(text: string, file: string, settings: string | undefined): string {
  if (settings === undefined) return text;
  readYaml(text, file); // refuses what nests or costs too much, with file and line
  const document = parseDocument(text);
  // the reader reports errors of the text, with file and line
  if (document.errors.length > 0) return text;
  for (const setting of settings.split('\n')) {
    const at = setting.indexOf('=');
    const path = at < 1 ? [] : pathOf(setting.slice(0, at));
    const value = settingValue(setting, setting.slice(at + 1));
    if (path.length === 0) throw configError('--set', `is "${setting}"`, 'Write field=value.');
    const parent = path.length === 1 ? document.contents : document.getIn(path.slice(0, -1));
    const last = path.at(-1);
    const fits = typeof last === 'number' ? isSeq(parent) && last < parent.items.length : isMap(parent);
    if (!fits)
      throw configError('--set', `is "${setting}", which is nowhere in the file`, 'Look at the path.');
    // a node, so that the next setting can go into it
    document.setIn(path, document.createNode(value));
  }
  return document.toString();
}

/** The value of a setting, plain or as YAML. */
function settingValue(setting: string, text: string): unknown {
  const remedy = 'Write field=value, with a value as in the file.';
  // read as the value of a key, so that the limits of files hold
  readYaml(`value:\n  ${text}`, '--set');
  const document = parseDocument(text);
  if (document.errors.length > 0) throw configError('--set', `is "${setting}", which is not YAML`, remedy);
  try {
    return document.toJS() as unknown;
  } catch {
    throw configError('--set', `is "${setting}", which is not YAML`, remedy);
  }
}

/** `pools[0].engine.max_num_seqs` as keys and indices; empty for any other text. */
function pathOf(text: string): (string | number)[] {
  if (!/^[\w-]+(\[\d+\]|\.[\w-]+)*$/.test(text)) return [];
  return [...text.matchAll(/[\w-]+/g)].map(([part]) => (/^\d+$/.test(part) ? Number(part) : part));
}
