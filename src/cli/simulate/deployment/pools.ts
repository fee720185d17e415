/**
 * Models and pools of a deployment file. A model is what runs on which hardware; a pool is like instances of
 * it. Keys of both are the options of `tierkv simulate` with underscores, and are checked as those are.
 */

import type { Role } from '../../../sim/control/index.ts';
import type { PoolConfig } from '../../../sim/deployment/index.ts';
import type { LinkProfile } from '../../../sim/driver/index.ts';
import { readLinks } from '../../../sim/latency/links.ts';
import type { SpecNode } from '../../../sim/workload/spec/reader.ts';
import { withOptionNames } from '../../process/index.ts';
import { optionNames } from '../built.ts';
import { engineSetup, type MakeTiers } from '../input/engine.ts';
import { type EngineHardware, engineHardware } from '../input/latency.ts';
import { flagOf } from '../input/numbers.ts';
import { offloadTiersOf } from '../input/offloadConfig.ts';
import type { Options } from '../input/options.ts';
import { camel, inFile, type Place } from './fields.ts';

const modelKeys = [
  'hardware',
  'tp',
  'dp',
  'latency_model',
  'coefficients',
  'moe_comm_backend',
  'floor',
] as const;
const engineKeys = [
  'block_size_in_tokens',
  'total_kv_blocks',
  'gpu_memory_utilization',
  'max_model_len',
  'max_num_seqs',
  'max_num_batched_tokens',
  'long_prefill_token_threshold',
  'scheduler',
  'preemption_policy',
  'preemption_mode',
  'eviction',
  'kv_offload_threshold',
  'kv_load',
  'kv_cpu_blocks',
  'kv_transfer_bandwidth',
  'kv_transfer_base_latency',
] as const;
const roles: readonly Role[] = ['monolithic', 'prefill', 'decode'];
/** Most instances of a pool. */
const REPLICAS_MAX = 1024;

interface Model {
  readonly name: string;
  readonly machine: EngineHardware;
  readonly options: Options;
}

/** Those of the options that the keys of a mapping can say. */
function sayable(options: Options, keys: readonly string[]): Options {
  return Object.fromEntries(keys.map((key) => [camel(key), options[camel(key)]]));
}

export interface DeployedPool {
  readonly name: string;
  readonly config: PoolConfig;
  readonly machine: EngineHardware;
  /** Of its model and its engine, those of the file and defaults for the rest. */
  readonly options: Options;
  readonly bounds: { readonly min: number; readonly max: number };
  /** Its mapping in the file, and its own autoscaling there. */
  readonly node: SpecNode;
  readonly autoscaling: SpecNode | undefined;
}

/** Options out of the keys of a mapping, and where each is said. */
function optionsOf(
  node: SpecNode | undefined,
  keys: readonly string[],
): { given: Options; placeOf: (flag: string) => Place | undefined } {
  const given: Record<string, string | boolean> = {};
  const places = new Map<string, Place>();
  if (node === undefined) return { given, placeOf: () => undefined };
  for (const key of keys) {
    places.set(flagOf(camel(key)), [node, key]);
    if (!node.has(key)) continue;
    given[camel(key)] = key === 'floor' ? (node.flag(key) ?? false) : node.text(key);
  }
  return { given, placeOf: (flag) => places.get(flag) };
}

function readModel(node: SpecNode, base: Options): Model {
  const name = node.text('name');
  if (name === '') throw node.error('name', 'is missing', 'Call the model as requests do');
  const { given, placeOf } = optionsOf(node, modelKeys);
  const config = node.text('config', name);
  node.close();
  const options = { ...base, floor: undefined, ...given, model: config };
  const machine = inFile(
    (field) => placeOf(field) ?? (field === '--model' || field === 'model' ? [node, 'name'] : undefined),
    () => withOptionNames(optionNames, () => engineHardware(options)),
  );
  return { name, machine, options: sayable(options, modelKeys) };
}

/** @param base every option of `tierkv simulate` with its default */
export function readPools(root: SpecNode, base: Options): DeployedPool[] {
  const models = root.list('models').map((node) => readModel(node, base));
  if (models.length === 0) throw root.error('models', 'is empty', 'Name a model with its hardware');
  requireUnique(root, 'models', models);
  const pools = root.list('pools').map((node) => readPool(node, base, models));
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

function readPool(node: SpecNode, base: Options, models: readonly Model[]): DeployedPool {
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
  const options: Options = { ...base, ...given };
  const { engine, limits } = inFile(placeOf, () =>
    withOptionNames(optionNames, () => engineSetup(options, machine, {}, tiersOf(node, given))),
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

/** A number, or least, most and how many there are at first. */
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
function tiersOf(node: SpecNode, given: Options): MakeTiers | undefined {
  const tiers = node.section('tiers');
  if (tiers === undefined) return undefined;
  if (given.kvCpuBlocks !== undefined) {
    throw node.error('tiers', 'excludes engine.kv_cpu_blocks', 'Keep one of them');
  }
  return (blockBytes) => {
    const links = readLinks(tiers) ?? {};
    const made = offloadTiersOf(tiers, blockBytes);
    if (made.loads.kind !== 'deferred') return made;
    const merged: Record<string, LinkProfile> = { ...made.loads.links, ...links };
    return { ...made, loads: { ...made.loads, links: merged } };
  };
}
