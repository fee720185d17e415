/**
 * The control plane of a deployment file: a policy by name for each stage, with its parameters, and how old
 * the router's signals are.
 */

import path from 'node:path';
import { readText } from '../files/inputs.ts';
import { TierKVError } from '../runtime/errors.ts';
import { keyOfSeed } from '../sim/cluster/parts.ts';
import type { ControlConfig } from '../sim/control/controlPlane.ts';
import { checkControl, defaultControl } from '../sim/control/plane.ts';
import type { PolicyChoice, Role } from '../sim/control/policy.ts';
import { shadowNames } from '../sim/control/routerState.ts';
import {
  type DelayDistribution,
  drainModes,
  type ScalingActuationConfig,
  warmupCurves,
} from '../sim/control/scaling/autoScalePolicy.ts';
import { noTriggers, type ScaleTriggers } from '../sim/control/scaling/autoScaler.ts';
import type { PoolConfig } from '../sim/description/deployment.ts';
import type { SpecNode } from '../sim/description/fields.ts';
import { readWorkloadSpec } from '../sim/description/readWorkload.ts';
import type { WorkloadSpec } from '../sim/description/workloadSpec.ts';
import { readLinks } from '../sim/latency/capacity.ts';
import { sizedTierNames } from '../sim/links/machineTiers.ts';
import type { LinkProfile } from '../sim/links/modeledDriver.ts';
import type { SharedServerConfig } from '../sim/links/sharedServer.ts';
import { makeScaling, type PlannedScaling } from './built.ts';
import {
  type EngineHardware,
  engineHardware,
  engineSetup,
  type MakeTiers,
  sharedTierOf,
} from './engineOptions.ts';
import { offloadTiersOf } from './offloadTiers.ts';
import { optionNames, withOptionNames } from './optionNames.ts';
import { engineKeys, flagKeys, flagOf, modelKeys, type OptionValues, optionNameOf } from './optionTable.ts';

const stages = [
  'admission',
  'priority',
  'routing',
  'prefill_routing',
  'decode_routing',
  'decider',
  'gateway',
] as const;

/** Names of stages in the registries, where they differ from the key. */
const stageOf: Readonly<Record<string, string>> = { prefill_routing: 'routing', decode_routing: 'routing' };

interface DeployedControl {
  readonly control: ControlConfig;
  readonly gateway: { readonly tickUs: number; readonly ttlUs: number } | null;
  readonly admissionLatencyUs: number;
  readonly routingLatencyUs: number;
}

/** A policy and its parameters; names may have underscores. */
function readPolicy(node: SpecNode, except: readonly string[] = []): PolicyChoice {
  const policy = node.text('policy');
  if (policy === '') throw node.error('policy', 'is missing', 'Name one');
  const parameters = node.keys().filter((key) => key !== 'policy' && !except.includes(key));
  return { policy, ...Object.fromEntries(parameters.map((key) => [camel(key), node.plain(key)])) };
}

/** The key of a policy's mapping that a field such as `routing.scorers.queue-depth` is about. */
function placeIn(node: SpecNode, field: string): FieldPlace {
  const [, parameter = 'policy'] = field.split('.');
  return [node, node.keys().find((key) => camel(key) === parameter) ?? 'policy'];
}

const time = { min: 0, max: 1e15 };

export function readControl(root: SpecNode): DeployedControl {
  const node = root.section('control');
  const sections = new Map<string, SpecNode>();
  for (const stage of stages) {
    const section = node?.section(stage);
    if (section !== undefined) sections.set(stage, section);
  }
  const choices: Record<string, PolicyChoice> = {};
  for (const [stage, section] of sections) {
    choices[camel(stage)] = readPolicy(section, stage === 'gateway' ? ['tick_us', 'ttl_us'] : []);
  }
  const config: Partial<ControlConfig> = {
    ...choices,
    signals: readSignals(node?.section('signals')),
    shadow: readShadow(node?.section('shadow')),
    history: readHistory(node?.section('history')),
    topK: node?.integer('top_k', { min: -1, max: 10_000 }, 0) ?? 0,
  };
  const control = inFile(
    (field) => {
      const [stage] = field.split('.');
      const found = [...sections].find(([key]) => (stageOf[key] ?? key) === stage);
      return found === undefined ? undefined : placeIn(found[1], field);
    },
    () => checkControl(config),
  );
  const gatewayNode = sections.get('gateway');
  const gateway =
    gatewayNode === undefined
      ? null
      : {
          tickUs: gatewayNode.integer('tick_us', { min: 1, max: 1e12 }, 1000),
          ttlUs: gatewayNode.integer('ttl_us', time, 0),
        };
  const admissionLatencyUs = node?.integer('admission_latency_us', time, 0) ?? 0;
  const routingLatencyUs = node?.integer('routing_latency_us', time, 0) ?? 0;
  node?.close();
  return { control, gateway, admissionLatencyUs, routingLatencyUs };
}

function readSignals(node: SpecNode | undefined): ControlConfig['signals'] {
  const known = defaultControl.signals;
  if (node === undefined) return known;
  const signals = {
    snapshotIntervalUs: node.integer('snapshot_interval_us', time, known.snapshotIntervalUs),
    cacheSignalUs: node.integer('cache_signal_us', time, known.cacheSignalUs),
  };
  node.close();
  return signals;
}

function readShadow(node: SpecNode | undefined): ControlConfig['shadow'] {
  const known = defaultControl.shadow;
  if (node === undefined) return known;
  const shadow = {
    model: node.choice('model', shadowNames, 'none'),
    blocks: node.integer('blocks', { min: 0, max: 2 ** 24 }, known.blocks),
    eventDelayUs: node.integer('event_delay_us', time, known.eventDelayUs),
    speculativeTtlUs: node.integer('speculative_ttl_us', time, known.speculativeTtlUs),
  };
  node.close();
  return shadow;
}

function readHistory(node: SpecNode | undefined): ControlConfig['history'] {
  const known = defaultControl.history;
  if (node === undefined) return known;
  const history = {
    windowUs: node.integer('window_us', { min: 1000, max: 86_400e6 }, known.windowUs),
    windows: node.integer('windows', { min: 0, max: 100_000 }, known.windows),
    burstFactor: node.number('burst_factor', { above: 1, max: 1e6 }, known.burstFactor),
  };
  node.close();
  return history;
}

//  Errors about options and fields become errors about the deployment file: file, line and key.

/** Place of a field in the file: a key of a mapping. */
type FieldPlace = readonly [node: SpecNode, key: string];

/** Runs `act`. Its errors about a field that `placeOf` knows become errors about that place of the file. */
function inFile<T>(placeOf: (field: string) => FieldPlace | undefined, act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof TierKVError) || error.field === undefined || error.path !== undefined) throw error;
    const { field, message } = error;
    const place = placeOf(field);
    if (place === undefined) throw error;
    const said = message.startsWith(`${field} `) ? message.slice(field.length + 1) : `(${message})`;
    const end = said.indexOf('. ');
    const problem = end === -1 ? said.replace(/\.$/, '') : said.slice(0, end);
    throw place[0].error(place[1], problem, end === -1 ? 'Change it.' : said.slice(end + 2));
  }
}

/** `max_num_seqs` is `maxNumSeqs`. */
function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

// Models and pools of a deployment file. A model is what runs on which hardware; a pool is like instances of
// it. Keys of both are the options of `tierkv simulate` with underscores, and are checked as those are.

const roles: readonly Role[] = ['monolithic', 'prefill', 'decode'];
/** Most instances of a pool. */
const REPLICAS_MAX = 1024;

interface Model {
  readonly name: string;
  readonly machine: EngineHardware;
  readonly options: OptionValues;
}

/** The option behind a key: `max_num_seqs` is `--max-num-seqs`. */
function nameOf(key: string): string {
  return optionNameOf(`--${key.replaceAll('_', '-')}`);
}

/** The options that keys of a mapping can set. */
function sayable(options: OptionValues, keys: readonly string[]): OptionValues {
  return Object.fromEntries(keys.map((key) => [nameOf(key), options[nameOf(key)]]));
}

interface DeployedPool {
  readonly name: string;
  readonly config: PoolConfig;
  readonly machine: EngineHardware;
  /** Options of its model and engine: values of the file, and defaults for the rest. */
  readonly options: OptionValues;
  readonly bounds: { readonly min: number; readonly max: number };
  /** The pool's mapping in the file, and the section `autoscaling` in it. */
  readonly node: SpecNode;
  readonly autoscaling: SpecNode | undefined;
}

/** Options that the keys of a mapping set, with the place of each. */
function optionsOf(
  node: SpecNode | undefined,
  keys: readonly string[],
): { given: OptionValues; placeOf: (flag: string) => FieldPlace | undefined } {
  const given: Record<string, string | boolean> = {};
  const places = new Map<string, FieldPlace>();
  if (node === undefined) return { given, placeOf: () => undefined };
  for (const key of keys) {
    const name = nameOf(key);
    if (!node.says(key)) {
      if (!Object.hasOwn(given, name)) places.set(flagOf(name), [node, key]);
      continue;
    }
    if (Object.hasOwn(given, name)) throw node.error(key, 'is said under two names', 'Keep one');
    places.set(flagOf(name), [node, key]);
    given[name] = flagKeys.includes(key) ? (node.flag(key) ?? false) : node.text(key);
  }
  return { given, placeOf: (flag) => places.get(flag) };
}

function readModel(node: SpecNode, base: OptionValues): Model {
  const name = node.text('name');
  if (name === '') throw node.error('name', 'is missing', 'Call the model as requests do');
  const { given, placeOf } = optionsOf(node, modelKeys);
  const config = node.text('config', name);
  node.close();
  const options = { ...base, ...given, model: config };
  const machine = inFile(
    (field) => placeOf(field) ?? (field === '--model' || field === 'model' ? [node, 'name'] : undefined),
    () => withOptionNames(optionNames, () => engineHardware(options)),
  );
  const known = { ...options, latencyModel: machine.coefficients.backend };
  return { name, machine, options: sayable(known, modelKeys) };
}

/** @param base all options of `tierkv simulate` with their defaults */
export function readPools(root: SpecNode, base: OptionValues): DeployedPool[] {
  const models = root.list('models').map((node) => readModel(node, base));
  if (models.length === 0) throw root.error('models', 'is empty', 'Name a model with its hardware');
  requireUnique(root, 'models', models);
  const sharedNode = root.section('shared_tier');
  const shared = sharedNode === undefined ? undefined : sharedTierOf(sharedNode);
  sharedNode?.close();
  const pools = root.list('pools').map((node) => readPool(node, base, models, shared));
  if (pools.length === 0) throw root.error('pools', 'is empty', 'Give a pool with replicas');
  requireUnique(root, 'pools', pools);
  requirePairs(root, pools);
  return pools;
}

function requireUnique(root: SpecNode, key: string, all: readonly { readonly name: string }[]): void {
  const twice = all.find(({ name }, i) => all.findIndex((other) => other.name === name) !== i);
  if (twice !== undefined) throw root.error(key, `has "${twice.name}" twice`, 'Give each its own name');
}

/** A pool of one role needs the other for its model. */
function requirePairs(root: SpecNode, pools: readonly DeployedPool[]): void {
  for (const { name, config } of pools) {
    if (config.role === 'monolithic') continue;
    const other = config.role === 'prefill' ? 'decode' : 'prefill';
    const isPaired = pools.some(({ config: { role, model } }) => {
      return (
        model === config.model && (role === other || (config.role === 'prefill' && role === 'monolithic'))
      );
    });
    if (isPaired) continue;
    throw root.error(
      'pools',
      `has ${config.role} pool "${name}" and no ${other} pool`,
      `Add one, or change its role`,
    );
  }
}

function readPool(
  node: SpecNode,
  base: OptionValues,
  models: readonly Model[],
  shared: SharedServerConfig | undefined,
): DeployedPool {
  const name = node.text('name');
  if (name === '') throw node.error('name', 'is missing', 'Give the pool a name');
  const names = models.map((model) => model.name);
  const modelName = models.length === 1 ? node.text('model', names[0]) : node.text('model');
  if (!names.includes(modelName)) node.choice('model', names);
  const { machine, options: ofModel } = models[names.indexOf(modelName)];
  const role = node.choice<Role>('role', roles, 'monolithic');
  const { replicas, bounds } = readReplicas(node);
  const engineNode = node.section('engine');
  const { given, placeOf } = optionsOf(engineNode, engineKeys);
  const options: OptionValues = { ...base, ...given };
  const { engine, limits } = inFile(placeOf, () =>
    withOptionNames(optionNames, () => engineSetup(options, machine, {}, tiersOf(node, given, shared))),
  );
  engineNode?.close();
  const autoscaling = node.section('autoscaling');
  node.close();
  return {
    name,
    machine,
    options: { ...ofModel, ...sayable(options, engineKeys) },
    bounds,
    node,
    autoscaling,
    config: {
      configId: name,
      role,
      model: models.length === 1 ? '' : modelName,
      replicas,
      engine,
      latency: machine.latency,
      limits,
    },
  };
}

/** Replicas: a number, or a mapping of least, most and initial number. */
function readReplicas(node: SpecNode): {
  replicas: number;
  bounds: { readonly min: number; readonly max: number };
} {
  const range = { min: 1, max: REPLICAS_MAX };
  const isMapping = node.has('replicas') && typeof node.plain('replicas') === 'object';
  if (!isMapping) {
    const replicas = node.integer('replicas', range, 1);
    return { replicas, bounds: { min: replicas, max: replicas } };
  }
  const section = node.section('replicas') as SpecNode; // it is a mapping
  const min = section.integer('min', range, 1);
  const max = section.integer('max', { min, max: REPLICAS_MAX }, min);
  const replicas = section.integer('initial', { min, max }, min);
  section.close();
  return { replicas, bounds: { min, max } };
}

/** Tiers as `--kv-offload-config` has them, and links as `tierkv calibrate` measures them. */
function tiersOf(
  node: SpecNode,
  given: OptionValues,
  shared: SharedServerConfig | undefined,
): MakeTiers | undefined {
  const tiers = node.section('tiers');
  const withShared = shared === undefined ? {} : { shared };
  if (tiers === undefined) {
    if (shared === undefined) return undefined;
    for (const key of ['kv_cpu_blocks', ...sizedTierNames]) {
      if (given[nameOf(key)] === undefined) continue;
      throw node.error('engine', `has ${key} beside shared_tier`, 'Say its tiers under tiers');
    }
    return () => ({ lowerTiers: [], loads: { kind: 'deferred', links: {}, prefetch: true }, ...withShared });
  }
  for (const key of ['kv_cpu_blocks', ...sizedTierNames]) {
    if (given[nameOf(key)] === undefined) continue;
    throw node.error('tiers', `excludes engine.${key}`, 'Keep one of them');
  }
  return (blockBytes) => {
    const links = readLinks(tiers) ?? {};
    const made = offloadTiersOf(tiers, blockBytes);
    if (made.loads.kind !== 'deferred') return { ...made, ...withShared };
    const merged: Record<string, LinkProfile> = { ...made.loads.links, ...links };
    return { ...made, loads: { ...made.loads, links: merged }, ...withShared };
  };
}

// Autoscaling of a deployment file: of each pool that scales the policy, when it looks, and how long replicas
// take to come and go. What a pool says goes before what the file says for all of them.

const scalingTime = { min: 0, max: 1e12 };
/** Microseconds between two evaluations: of the policy, or with `event` of the triggers, which should be seen soon. */
const POLL_US = { periodic: 30_000_000, event: 1_000_000 } as const;

/** @returns one for each pool that scales, in order of the pools */
export function readScaling(root: SpecNode, pools: readonly DeployedPool[]): PlannedScaling[] {
  const forAll = root.section('autoscaling');
  const isOnly = pools.length === 1;
  let isUsed = false;
  const setups = pools.flatMap((pool): PlannedScaling[] => {
    const { name, bounds, autoscaling, node } = pool;
    const hasRoom = bounds.min < bounds.max;
    if (autoscaling !== undefined && !hasRoom) {
      const problem = `has no room, since replicas are ${bounds.min}`;
      throw node.error('autoscaling', problem, 'Write replicas: {min: 1, max: 4}, or leave it out');
    }
    const said = autoscaling ?? (hasRoom || isOnly ? forAll : undefined);
    if (said === undefined) {
      if (!hasRoom) return [];
      const problem = `gives "${name}" room to scale, and autoscaling is missing`;
      throw root.error('pools', problem, 'Add autoscaling to it or for all, or say replicas as a number');
    }
    isUsed ||= said === forAll;
    // each of several pools draws its own delays
    const setup = readSetup(said, pool, isOnly ? '' : ` ${name}`);
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
function readSetup(node: SpecNode, { name, bounds, config }: DeployedPool, suffix: string): PlannedScaling {
  const mode = node.choice('mode', ['periodic', 'event'], 'periodic');
  const policyNode = node.section('policy');
  if (policyNode === undefined) throw node.error('policy', 'is missing', 'Write policy: {policy: hpa}');
  const policy = readPolicy(policyNode);
  const { engine, limits } = config;
  const planned: PlannedScaling = {
    configId: name,
    scaler: {
      policy,
      mode,
      pollIntervalUs: node.integer('poll_interval_us', { min: 1, max: 1e12 }, POLL_US[mode]),
      minReplicas: bounds.min,
      maxReplicas: bounds.max,
      upWindowUs: node.integer('up_window_us', scalingTime, 0),
      downWindowUs: node.integer('down_window_us', scalingTime, 0),
      triggers: readTriggers(node.section('triggers')),
    },
    start: node.flag('warm_start') === false ? 'cold' : 'warm',
    actuation: readActuation(node),
    bounds,
    replicas: config.replicas,
    capacityTokens: engine.topBlocks * engine.blockTokens,
    blockTokens: engine.blockTokens,
    maxSequences: limits.maxSequences,
    suffix,
  };
  // built once here, so that an error has the line of the file
  inFile(
    (field) => (field === 'scaling.triggers' ? [node, 'triggers'] : placeIn(policyNode, field)),
    () => makeScaling(planned, keyOfSeed(0n), {}),
  );
  return planned;
}

function readTriggers(node: SpecNode | undefined): ScaleTriggers {
  if (node === undefined) return noTriggers;
  const triggers: ScaleTriggers = {
    queueDepth: node.number('queue_depth', { min: 0 }, noTriggers.queueDepth),
    sloAttainment: node.number('slo_attainment', { min: 0, max: 1 }, noTriggers.sloAttainment),
    utilizationHigh: node.number('utilization_high', { min: 0, max: 1 }, noTriggers.utilizationHigh),
    utilizationLow: node.number('utilization_low', { min: 0, max: 1 }, noTriggers.utilizationLow),
    rateChange: node.number('rate_change', { above: 1 }, noTriggers.rateChange),
    sustainedUs: node.integer('sustained_us', scalingTime, 0),
  };
  node.close();
  return triggers;
}

function readDelay(node: SpecNode, key: string): DelayDistribution {
  const section = node.section(key);
  const delay = {
    meanUs: section?.number('mean_us', scalingTime, 0) ?? 0,
    stddevUs: section?.number('stddev_us', scalingTime, 0) ?? 0,
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
      durationUs: warmup?.integer('duration_us', scalingTime, 0) ?? 0,
      curve: warmup?.choice('curve', warmupCurves, 'linear') ?? 'linear',
      initialPenaltyFactor: warmup?.number('initial_penalty_factor', { min: 1, max: 1000 }, 1) ?? 1,
    },
    drain: {
      mode: drain?.choice('mode', drainModes, 'wait') ?? 'wait',
      drainTimeoutUs: drain?.integer('timeout_us', scalingTime, 0) ?? 0,
    },
  };
  warmup?.close();
  drain?.close();
  return actuation;
}

//  The workload of a deployment file: a file beside it, a preset, or a specification in place.

export interface DeployedWorkload {
  /** Options that describe the workload. */
  readonly options: OptionValues;
  readonly spec: WorkloadSpec | undefined;
  /** An error about an option that the file gave is about its key there. */
  readonly inFile: (error: unknown) => unknown;
}

const presetKeys = [
  'rate',
  'num_requests',
  'concurrency',
  'think_time_ms',
  'prefix_tokens',
  'prompt_tokens',
  'prompt_tokens_stdev',
  'prompt_tokens_min',
  'prompt_tokens_max',
  'output_tokens',
  'output_tokens_stdev',
  'output_tokens_min',
  'output_tokens_max',
] as const;

/** @param file of the deployment; paths in it are relative to its folder */
export function readWorkload(root: SpecNode, file: string): DeployedWorkload {
  const node = root.section('workload');
  if (node === undefined) return { options: {}, spec: undefined, inFile: (error) => error };
  const kinds = (['file', 'preset', 'spec'] as const).filter((key) => node.has(key));
  if (kinds.length !== 1) {
    throw node.error('', `names ${kinds.length} of file, preset and spec`, 'Name one of them');
  }
  const folder = path.dirname(file);
  const options: Record<string, string> = {};
  let spec: WorkloadSpec | undefined;
  if (kinds[0] === 'file') {
    options.workloadSpec = path.resolve(folder, node.text('file'));
    if (node.says('num_requests')) options.numRequests = node.text('num_requests');
  } else if (kinds[0] === 'preset') {
    options.workload = node.text('preset');
    for (const key of presetKeys) if (node.says(key)) options[camel(key)] = node.text(key);
  } else {
    const section = node.section('spec');
    if (section === undefined) throw node.error('spec', 'is empty', 'Write the specification under it');
    const readFile = (name: string): string => readText(path.resolve(folder, name));
    spec = readWorkloadSpec(section, file, { readFile });
    if (spec.servegen !== undefined) {
      throw node.error('spec', 'has servegen_data', 'Put the specification into a file of its own');
    }
  }
  node.close();
  const inFile = (error: unknown): unknown => {
    const key = presetKeys.find(
      (each) => error instanceof TierKVError && flagOf(camel(each)) === error.field,
    );
    if (!(error instanceof TierKVError) || error.field === undefined || key === undefined) return error;
    const said = error.message.replaceAll(error.field, `workload.${key}`);
    const [problem, ...remedy] = said.replace(`workload.${key} `, '').split('. ');
    return node.error(key, problem, remedy.join('. ').replace(/\.$/, ''));
  };
  return { options, spec, inFile };
}

/** `slo: {ttft: {critical: 500ms}}` as the options of goodput. */
export function readTargets(root: SpecNode): OptionValues {
  const node = root.section('slo');
  if (node === undefined) return {};
  const options: Record<string, string> = {};
  for (const key of ['ttft', 'itl', 'e2e']) {
    const section = node.section(key);
    if (section === undefined) continue;
    const targets = section.keys().map((sloClass) => `${sloClass}=${section.text(sloClass)}`);
    section.close();
    if (targets.length > 0) options[camel(`slo_${key}`)] = targets.join(',');
  }
  node.close();
  return options;
}
