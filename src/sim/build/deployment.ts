/**
 * The control plane of a deployment file: a policy by name for each stage, with its parameters, and how old
 * the router's signals are.
 */

import path from 'node:path';
import { readText } from '../../io/files/inputs.ts';
import { faultAt, TierKVError } from '../../runtime/errors.ts';
import { keyOfSeed } from '../cluster/parts.ts';
import type { ControlConfig } from '../control/controlPlane.ts';
import { checkControl, defaultControl } from '../control/plane.ts';
import type { PolicyChoice, Role } from '../control/policy.ts';
import { shadowNames } from '../control/routerState.ts';
import {
  type DelayDistribution,
  drainModes,
  type ScalingActuationConfig,
  warmupCurves,
} from '../control/scaling/autoScalePolicy.ts';
import { noTriggers, type ScaleTriggers } from '../control/scaling/autoScaler.ts';
import type { PoolConfig } from '../description/deployment.ts';
import type { SpecNode } from '../description/fields.ts';
import { keysOf } from '../description/knobs.ts';
import { fromKey, fromMapping } from '../description/readers.ts';
import { readWorkloadSpec } from '../description/readWorkload.ts';
import { type Deployment, get, isGiven, nothingSaid, withValue } from '../description/settings.ts';
import type { WorkloadSpec } from '../description/workloadSpec.ts';
import { readLinks } from '../latency/capacity.ts';
import { sizedTierNames } from '../links/machineTiers.ts';
import type { LinkProfile } from '../links/modeledDriver.ts';
import type { SharedServerConfig } from '../links/sharedServer.ts';
import { makeScaling, type PlannedScaling } from './built.ts';
import { drawingTies } from './controlSettings.ts';
import {
  type EngineHardware,
  engineHardware,
  engineSetup,
  type MakeTiers,
  sharedTierOf,
} from './engineSettings.ts';
import { offloadTiersOf } from './offloadTiers.ts';

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
  const gatewayNode = sections.get('gateway');
  const choices: Record<string, PolicyChoice> = {};
  for (const [stage, section] of sections) {
    const choice = readPolicy(
      section,
      stage === 'gateway' ? keysOf('control.gateway').map(([key]) => key) : [],
    );
    choices[camel(stage)] = (stageOf[stage] ?? stage) === 'routing' ? drawingTies(choice) : choice;
  }
  const config: Partial<ControlConfig> = {
    ...choices,
    signals: readSignals(node?.section('signals')),
    shadow: readShadow(node?.section('shadow')),
    history: readHistory(node?.section('history')),
    topK: node?.integer('top_k', { min: -1, max: 10_000 }, 0) ?? 0,
  };
  const control = atKeys(
    (field) => {
      const [stage] = field.split('.');
      const found = [...sections].find(([key]) => (stageOf[key] ?? key) === stage);
      return found === undefined ? undefined : placeIn(found[1], field);
    },
    () => checkControl(config),
  );
  const said = fromMapping(node, 'control', nothingSaid);
  const queue = fromMapping(gatewayNode, 'control.gateway', nothingSaid);
  const gateway =
    gatewayNode === undefined
      ? null
      : { tickUs: get(queue, 'gateway.tickUs'), ttlUs: get(queue, 'gateway.ttlUs') };
  node?.close();
  return {
    control,
    gateway,
    admissionLatencyUs: get(said, 'control.admissionLatencyUs'),
    routingLatencyUs: get(said, 'control.routingLatencyUs'),
  };
}

function readSignals(node: SpecNode | undefined): ControlConfig['signals'] {
  const known = defaultControl.signals;
  if (node === undefined) return known;
  const { values } = fromMapping(node, 'control.signals', nothingSaid);
  node.close();
  return {
    snapshotIntervalUs: values['control.snapshotUs'] ?? known.snapshotIntervalUs,
    cacheSignalUs: values['control.cacheSignalUs'] ?? known.cacheSignalUs,
  };
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

//  Checks of parts that know their own fields become errors about the deployment file: file, line and key.

/** SourcePlace of a field in the file: a key of a mapping. */
type FieldPlace = readonly [node: SpecNode, key: string];

/** Runs `act`. Its errors about a field that `placeOf` knows become errors about that place of the file. */
function atKeys<T>(placeOf: (field: string) => FieldPlace | undefined, act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof TierKVError) || error.field === undefined || error.path !== undefined) throw error;
    const place = placeOf(error.field);
    if (place === undefined) throw error;
    const [node, key] = place;
    throw faultAt(error, node.place(key), (field) => {
      const found = placeOf(field);
      return found === undefined ? field : found[0].place(found[1]).name;
    });
  }
}

/** `max_num_seqs` is `maxNumSeqs`. */
function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

// Models and pools of a deployment file. A model is what runs on which hardware; a pool is like instances of
// it. Keys of both are settings under the names of their options, with underscores.

const roles: readonly Role[] = ['monolithic', 'prefill', 'decode'];
/** Most instances of a pool. */
const REPLICAS_MAX = 1024;

interface Model {
  readonly name: string;
  readonly machine: EngineHardware;
  readonly deployment: Deployment;
}

interface DeployedPool {
  readonly name: string;
  readonly config: PoolConfig;
  readonly machine: EngineHardware;
  /** Settings of its model and engine, with their places in the file. */
  readonly deployment: Deployment;
  readonly bounds: { readonly min: number; readonly max: number };
  /** The pool's mapping in the file, and the section `autoscaling` in it. */
  readonly node: SpecNode;
  readonly autoscaling: SpecNode | undefined;
}

function readModel(node: SpecNode, base: Deployment): Model {
  const name = node.text('name');
  if (name === '') throw node.error('name', 'is missing', 'Call the model as requests do');
  const said = fromMapping(node, 'model', base);
  const config = node.text('config', name);
  const at = node.place(node.has('config') ? 'config' : 'name');
  node.close();
  const deployment = withValue(said, 'model', config, at);
  const machine = engineHardware(deployment);
  return {
    name,
    machine,
    deployment: withValue(deployment, 'latency.model', machine.coefficients.backend),
  };
}

/** @param run settings of the whole run: a pool has its seed and whether it is as upstream */
export function readPools(root: SpecNode, run: Deployment): DeployedPool[] {
  const { seed, asUpstream } = run.values;
  const values = {
    ...(seed === undefined ? {} : { seed }),
    ...(asUpstream === undefined ? {} : { asUpstream }),
  };
  const base: Deployment = { ...nothingSaid, values, words: run.words };
  const models = root.list('models').map((node) => readModel(node, base));
  if (models.length === 0) throw root.error('models', 'is empty', 'Name a model with its hardware');
  requireUnique(root, 'models', models);
  const sharedNode = root.section('shared_tier');
  const shared = sharedNode === undefined ? undefined : sharedTierOf(sharedNode);
  sharedNode?.close();
  const pools = root.list('pools').map((node) => readPool(node, models, shared));
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
  models: readonly Model[],
  shared: SharedServerConfig | undefined,
): DeployedPool {
  const name = node.text('name');
  if (name === '') throw node.error('name', 'is missing', 'Give the pool a name');
  const names = models.map((model) => model.name);
  const modelName = models.length === 1 ? node.text('model', names[0]) : node.text('model');
  if (!names.includes(modelName)) node.choice('model', names);
  const { machine, deployment: ofModel } = models[names.indexOf(modelName)];
  const role = node.choice<Role>('role', roles, 'monolithic');
  const { replicas, bounds } = readReplicas(node);
  const engineNode = node.section('engine');
  const own = fromMapping(engineNode, 'engine', ofModel);
  const { engine, limits } = engineSetup(own, machine, {}, tiersOf(node, own, shared));
  engineNode?.close();
  const autoscaling = node.section('autoscaling');
  node.close();
  return {
    name,
    machine,
    deployment: own,
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

/** Keys of an engine that are sizes of tiers. */
const sizedKeys = keysOf('engine').filter(([, path]) =>
  ['tiers.hostBlocks', ...sizedTierNames.map((name) => `tiers.${name}`)].includes(path),
);

/** Tiers as the file of `tiers.offloadConfig` has them, and links as `tierkv calibrate` measures them. */
function tiersOf(
  node: SpecNode,
  own: Deployment,
  shared: SharedServerConfig | undefined,
): MakeTiers | undefined {
  const tiers = node.section('tiers');
  const withShared = shared === undefined ? {} : { shared };
  if (tiers === undefined) {
    if (shared === undefined) return undefined;
    for (const [key, path] of sizedKeys) {
      if (!isGiven(own, path)) continue;
      throw node.error('engine', `has ${key} beside shared_tier`, 'Say its tiers under tiers');
    }
    return () => ({ lowerTiers: [], loads: { kind: 'deferred', links: {}, prefetch: true }, ...withShared });
  }
  for (const [key, path] of sizedKeys) {
    if (!isGiven(own, path)) continue;
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
  atKeys(
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
  /** Settings that describe the workload, with their places in the file. */
  readonly settings: Deployment;
  readonly spec: WorkloadSpec | undefined;
}

/**
 * @param file of the deployment; paths in it are relative to its folder
 * @param run settings of the run, whose words are those of what the file leaves out
 */
export function readWorkload(root: SpecNode, file: string, run: Deployment): DeployedWorkload {
  const none: Deployment = { ...nothingSaid, words: run.words };
  const node = root.section('workload');
  if (node === undefined) return { settings: none, spec: undefined };
  const kinds = (['file', 'preset', 'spec'] as const).filter((key) => node.has(key));
  if (kinds.length !== 1) {
    throw node.error('', `names ${kinds.length} of file, preset and spec`, 'Name one of them');
  }
  const folder = path.dirname(file);
  let settings = none;
  let spec: WorkloadSpec | undefined;
  if (kinds[0] === 'file') {
    const at = path.resolve(folder, node.text('file'));
    settings = withValue(none, 'workload.file', at, node.place('file'));
    if (node.says('num_requests')) settings = fromKey(node, 'num_requests', 'workload.requests', settings);
  } else if (kinds[0] === 'preset') {
    settings = fromMapping(node, 'workload', fromKey(node, 'preset', 'workload.preset', none));
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
  return { settings, spec };
}

/** `slo: {ttft: {critical: 500ms}}` as targets of goodput. */
export function readTargets(root: SpecNode): Deployment {
  let targets = nothingSaid;
  const node = root.section('slo');
  if (node === undefined) return targets;
  for (const [key, path] of [
    ['ttft', 'targets.ttftMs'],
    ['itl', 'targets.itlMs'],
    ['e2e', 'targets.e2eMs'],
  ] as const) {
    const section = node.section(key);
    if (section === undefined) continue;
    const classes = Object.fromEntries(section.keys().map((name) => [name, section.scalar(name)]));
    section.close();
    if (Object.keys(classes).length > 0) targets = fromKey(node, key, path, targets, classes);
  }
  node.close();
  return targets;
}
