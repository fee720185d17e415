/**
 * From settings, or from a deployment file, to a simulation as plain data: names are looked up, files are read, values
 * are checked. A plan goes to threads and to other machines, and all that is left to read there is a recorded trace.
 * Whatever it was written as, one builder (`build.ts`) makes a simulation of it.
 */

import { isMap, isSeq, parseDocument } from 'yaml';
import { readText } from '../../io/files/inputs.ts';
import type { TierKVError } from '../../runtime/errors.ts';
import { type HandoffConfig, handoffGranularities } from '../cluster/handoffs.ts';
import type { ControlConfig } from '../control/controlPlane.ts';
import type { Role } from '../control/policy.ts';
import type { PoolConfig } from '../description/deployment.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import { fromKey, fromMapping } from '../description/readers.ts';
import {
  type Deployment,
  fault,
  get,
  nameOf,
  nothingSaid,
  overlaid,
  withValue,
} from '../description/settings.ts';
import type { PlannedScaling } from './built.ts';
import { controlSetup, type PolicyFile, planScaling } from './controlSettings.ts';
import {
  type DeployedWorkload,
  readControl,
  readPools,
  readScaling,
  readTargets,
  readWorkload,
} from './deployment.ts';
import { chosen, engineHardware, engineSetup, type PlannedMachine } from './engineSettings.ts';
import { cutOffTiers, idleKeys } from './needs.ts';
import { prefixNotice } from './openWorkload.ts';
import { presetSpec } from './presetSettings.ts';
import { type PlannedWorkload, planWorkload } from './workloadSettings.ts';

/** A pool of equal instances: their configuration, and their number at the start. */
interface PlannedPool extends Omit<PoolConfig, 'latency'> {
  readonly machine: PlannedMachine;
  /** Settings of a pool of a deployment file. */
  readonly deployment?: Deployment;
}

export interface SimulationPlan {
  /** Source of the pools; those of a deployment file have names. */
  readonly source: 'settings' | 'file';
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
   * The deployment as asked for. Seed, targets, end and presets are read here when the simulation is made; the rest
   * says where a result comes from.
   */
  readonly deployment: Deployment;
  /** Warnings about settings without effect, a sentence each. */
  readonly notices: readonly string[];
}

/**
 * @param text of the deployment file. Default: it is read
 * @throws {TierKVError} for anything unknown or out of range, in the words of the one who wrote it
 */
export function planSimulation(deployment: Deployment, text?: string): SimulationPlan {
  const file = get(deployment, 'file');
  if (file === undefined) return planSettings(deployment);
  return planFile(file, text ?? readText(file), deployment);
}

/** The plan with another seed. Profiles of ServeGen are drawn when a plan is made, and so have to be planned again. */
export function withSeed(plan: SimulationPlan, seed: bigint): SimulationPlan {
  return { ...plan, deployment: withValue(plan.deployment, 'seed', seed) };
}

/** Instances by role: prefill first, then decode, then instances that do all. */
function poolsOf(deployment: Deployment): [Role, number][] {
  const total = get(deployment, 'pools.total');
  const prefill = get(deployment, 'pools.prefill');
  const decode = get(deployment, 'pools.decode');
  const shared = get(deployment, 'pools.instances');
  const named = prefill + decode + shared;
  if (named === 0) return [['monolithic', total]];
  if (named !== total) {
    const problem = `is ${total}, and the roles come to ${named}`;
    throw fault(deployment, 'pools.total', problem, 'Give every instance one role.');
  }
  if ((prefill === 0) !== (decode === 0) && shared === 0) {
    const missing = prefill === 0 ? 'pools.prefill' : 'pools.decode';
    throw fault(deployment, missing, 'is 0, and the other role is not', 'Deploy both, or neither.');
  }
  const pools: [Role, number][] = [
    ['prefill', prefill],
    ['decode', decode],
    ['monolithic', shared],
  ];
  return pools.filter(([, count]) => count > 0);
}

function planSettings(deployment: Deployment): SimulationPlan {
  const hardware = engineHardware(deployment);
  const { latency: _made, ...machine } = hardware;
  const { control, gateway, bundle } = controlSetup(deployment);
  const { engine, limits } = engineSetup(deployment, hardware, bundle);
  const pools = poolsOf(deployment).map(([role, replicas]): PlannedPool => {
    return { configId: 'default', role, model: '', replicas, engine, limits, machine };
  });
  const workload = planWorkload(deployment);
  const replicas = pools.reduce((sum, pool) => sum + pool.replicas, 0);
  const scaling = planScaling(deployment, bundle, hardware, engine, limits, replicas);
  return {
    source: 'settings',
    pools,
    control,
    gateway,
    admissionLatencyUs: get(deployment, 'control.admissionLatencyUs'),
    routingLatencyUs: get(deployment, 'control.routingLatencyUs'),
    handoff: {
      baseLatencyUs: 1000 * get(deployment, 'handoff.baseLatencyMs'),
      ...handoffOf(deployment),
    },
    scaling: scaling === undefined ? [] : [scaling],
    workload,
    policyFile: bundle,
    named: bundle.autoscaler ?? null,
    deployment: withValue(deployment, 'latency.model', hardware.coefficients.backend),
    notices: [...silentWorkload(workload), ...cutOffTiers(pools)],
  };
}

/** Notices of what a workload cannot show. */
function silentWorkload(workload: PlannedWorkload): string[] {
  const notice = workload.kind === 'trace' ? prefixNotice(workload.format) : undefined;
  return notice === undefined ? [] : [notice];
}

// A deployment file: models, pools, control plane, autoscaling, workload and targets in one YAML file, read
// strictly. What is said beside it of the workload, the seed and the targets goes before the file.

const VERSIONS = ['1'] as const;

function planFile(file: string, written: string, deployment: Deployment): SimulationPlan {
  const text = applySettings(written, file, deployment);
  const root = readYaml(text, file);
  root.choice('version', VERSIONS);
  const pools = readPools(root, deployment);
  const { control, gateway, admissionLatencyUs, routingLatencyUs } = readControl(root);
  const deployed = readWorkload(root, file, deployment);
  const handoff = readHandoff(root);
  const said = overlaid(readRun(root, readTargets(root)), deployment);
  const { workload, deployment: served } = planDeployed(said, deployed);
  const scaling = readScaling(root, pools);
  root.close();
  const plannedPools = pools.map(
    ({ config: { latency: _made, ...config }, machine, deployment: own }): PlannedPool => {
      const { latency: _same, ...planned } = machine;
      return { ...config, machine: planned, deployment: own };
    },
  );
  const plan: SimulationPlan = {
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
    deployment: served,
    notices: [],
  };
  const notices = [...silentWorkload(workload), ...idleKeys(text, plan), ...cutOffTiers(plannedPools)];
  return { ...plan, notices };
}

/** Plans the workload of a deployment file. One that is named beside the file goes before it. */
function planDeployed(
  deployment: Deployment,
  { settings, spec }: DeployedWorkload,
): { readonly workload: PlannedWorkload; readonly deployment: Deployment } {
  const names = ['workload.preset', 'workload.file', 'workload.traceData'] as const;
  const isNamed = names.some((path) => get(deployment, path) !== undefined);
  const all = isNamed ? deployment : overlaid(settings, deployment);
  const workload = planWorkload(all, isNamed ? undefined : spec);
  if (workload.kind === 'preset') presetSpec(all); // what is wrong in the file is said with its line
  return { workload, deployment: all };
}

/** The seed and the end of a run, beside what is known of it. */
function readRun(root: SpecNode, known: Deployment): Deployment {
  let run = known;
  if (root.has('seed')) run = withValue(run, 'seed', root.int64('seed', 0n), root.place('seed'));
  if (root.has('horizon_us')) run = fromKey(root, 'horizon_us', 'horizonUs', run);
  return run;
}

/** Parts of a hand-off that options and files say alike; the latency is in ms in the one and in µs in the other. */
function handoffOf(deployment: Deployment): Omit<HandoffConfig, 'baseLatencyUs'> {
  const granularity = get(deployment, 'handoff.granularity');
  return {
    bandwidthBytesPerS: 1e9 * get(deployment, 'handoff.bandwidthGbPerS'),
    granularity: chosen(deployment, 'handoff.granularity', granularity, handoffGranularities),
    pipelined: get(deployment, 'handoff.pipelined') === true,
    missingOnly: get(deployment, 'handoff.missingOnly') === true,
  };
}

function readHandoff(root: SpecNode): HandoffConfig {
  const node = root.section('handoff');
  const handoff = {
    baseLatencyUs: node?.number('base_latency_us', { min: 0, max: 1e12 }, 50) ?? 50,
    ...handoffOf(fromMapping(node, 'handoff', nothingSaid)),
  };
  if (node !== undefined && handoff.pipelined && handoff.granularity === 'request') {
    const problem = 'has nothing to send before the prompt is done with granularity request';
    throw node.error('pipelined', problem, 'Use chunk, block or stream');
  }
  node?.close();
  return handoff;
}

//  `pools[0].replicas=4`: fields of a deployment file, changed before it is read.

/**
 * The text with the fields set. A field may be new, what it lies in may not.
 * @param deployment with the settings of fields as they were given
 * @throws TKV_CONFIG for a text that must be a setting, or names a place that the file lacks
 */
function applySettings(text: string, file: string, deployment: Deployment): string {
  const settings = get(deployment, 'set');
  if (settings === undefined) return text;
  const wrong = (problem: string, remedy: string): TierKVError => fault(deployment, 'set', problem, remedy);
  readYaml(text, file); // refuses what nests or costs too much, with file and line
  const document = parseDocument(text);
  // the reader reports errors of the text, with file and line
  if (document.errors.length > 0) return text;
  for (const setting of settings) {
    const at = setting.indexOf('=');
    const path = at < 1 ? [] : pathOf(setting.slice(0, at));
    const value = settingValue(nameOf(deployment, 'set'), setting, setting.slice(at + 1), wrong);
    if (path.length === 0) throw wrong(`is "${setting}"`, 'Write field=value.');
    const parent = path.length === 1 ? document.contents : document.getIn(path.slice(0, -1));
    const last = path.at(-1);
    const fits = typeof last === 'number' ? isSeq(parent) && last < parent.items.length : isMap(parent);
    if (!fits) throw wrong(`is "${setting}", which is nowhere in the file`, 'Look at the path.');
    // a node, so that the next setting can go into it
    document.setIn(path, document.createNode(value));
  }
  return document.toString();
}

/** The value of a setting, plain or as YAML. */
function settingValue(
  name: string,
  setting: string,
  text: string,
  wrong: (problem: string, remedy: string) => TierKVError,
): unknown {
  const remedy = 'Write field=value, with a value as in the file.';
  // read as the value of a key, so that the limits of files hold
  readYaml(`value:\n  ${text}`, name);
  const document = parseDocument(text);
  if (document.errors.length > 0) throw wrong(`is "${setting}", which is not YAML`, remedy);
  try {
    return document.toJS() as unknown;
  } catch {
    throw wrong(`is "${setting}", which is not YAML`, remedy);
  }
}

/** `pools[0].engine.max_num_seqs` as keys and indices; empty for any other text. */
function pathOf(text: string): (string | number)[] {
  if (!/^[\w-]+(\[\d+\]|\.[\w-]+)*$/.test(text)) return [];
  return [...text.matchAll(/[\w-]+/g)].map(([part]) => (/^\d+$/.test(part) ? Number(part) : part));
}
