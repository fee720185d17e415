/** Upstream's policy bundle (`--policy-config`), read strictly: a key that it does not have is an error. */

import { shownPlain } from '../../../sim/workload/index.ts';
import { readYaml, type SpecNode } from '../../../sim/workload/spec/reader.ts';
import { readText } from '../../input/index.ts';

/** What a bundle says; absent is what it leaves out. */
export interface Bundle {
  readonly admission?: string;
  readonly bucketCapacity?: number;
  readonly bucketRefillRate?: number;
  readonly shedThreshold?: number;
  readonly shedMinPriority?: number;
  readonly queueThreshold?: number;
  readonly kvThreshold?: number;
  readonly priorities?: Readonly<Record<string, number>>;
  readonly sloTargetsUs?: Readonly<Record<string, number>>;
  readonly routing?: string;
  readonly scorers?: Readonly<Record<string, number>>;
  readonly scheduler?: string;
  readonly preemption?: string;
  readonly tenantBudgets?: Readonly<Record<string, number>>;
  readonly autoscaler?: BundleAutoscaler;
  /** The nodes that are there, where the bundle names node pools. */
  readonly nodePools?: readonly NodePool[];
  /** Mean and deviation in seconds. */
  readonly loadingDelayS?: readonly [mean: number, stddev: number];
  /** Whether instances of the start need not load their model; said with node pools only. */
  readonly warmStart?: boolean;
}

/** Nodes of one kind that are there from the start; no node is added later, as upstream adds none. */
export interface NodePool {
  readonly name: string;
  readonly gpuType: string;
  readonly nodes: number;
  readonly gpusPerNode: number;
}

/** Keys of a bundle that are read and change nothing, each with its reason. The docs list them. */
export const inertBundleKeys: Readonly<Record<string, string>> = {
  'priority.policy': 'upstream reads it and orders by the scheduler alone',
  'node_pools[].min_nodes': 'upstream adds and removes no node',
  'node_pools[].max_nodes': 'upstream adds and removes no node',
  'node_pools[].provisioning_delay': 'nodes of the start are there, and no other comes',
  'node_pools[].gpu_memory_gib': 'the hardware of the instances says it',
  'node_pools[].cost_per_hour': 'nothing is priced',
};

export interface BundleAutoscaler {
  readonly intervalUs: number;
  readonly upWindowUs: number;
  readonly downWindowUs: number;
  readonly delayS: readonly [mean: number, stddev: number];
  readonly kvThreshold: number;
  readonly upThreshold: number;
  readonly downBoundary: number;
  readonly inputTokens: number;
}

/** The fields whose values are known. */
function given<T extends object>(fields: { [K in keyof T]: T[K] | undefined }): Partial<T> {
  // entries that are undefined are left out, so the rest has its type
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

function textOf(node: SpecNode | undefined, key: string): string | undefined {
  const text = node?.text(key) ?? '';
  return text === '' ? undefined : text;
}

function numbersOf(
  node: SpecNode | undefined,
  key: string,
  range: { min?: number; max?: number; above?: number },
): Record<string, number> | undefined {
  const section = node?.section(key);
  if (section === undefined) return undefined;
  const numbers = Object.fromEntries(section.keys().map((name) => [name, section.number(name, range, 0)]));
  section.close();
  return numbers;
}

export function readBundle(file: string | undefined): Bundle {
  if (file === undefined) return {};
  const root = readYaml(readText(file), file);
  const bundle: Bundle = {
    ...admissionOf(root.section('admission')),
    ...routingOf(root.section('routing')),
    ...given<Bundle>({
      scheduler: textOf(root, 'scheduler'),
      preemption: policyOf(root.section('preemption')),
      tenantBudgets: numbersOf(root, 'tenant_budgets', { min: 0, max: 1 }),
      autoscaler: autoscalerOf(root.section('autoscaler')),
      nodePools: nodePoolsOf(root.list('node_pools')),
    }),
    ...lifecycleOf(root.section('instance_lifecycle')),
  };
  const priority = root.section('priority');
  const ranks = policyOf(priority) ?? 'constant';
  if (priority !== undefined && ranks !== 'constant') {
    const problem = `is "${shownPlain(ranks)}", which changes nothing, here as upstream`;
    throw priority.error('policy', problem, 'Drop it; scheduler: priority-fcfs orders requests by class');
  }
  root.close();
  return bundle;
}

function delayOf(node: SpecNode | undefined, key: string): [number, number] {
  const delay = node?.section(key);
  const range = { min: 0, max: 1e6 };
  const found: [number, number] = [
    delay?.number('mean', range, 0) ?? 0,
    delay?.number('stddev', range, 0) ?? 0,
  ];
  delay?.close();
  return found;
}

function autoscalerOf(node: SpecNode | undefined): BundleAutoscaler | undefined {
  if (node === undefined) return undefined;
  const analyzer = node.section('analyzer');
  const time = { min: 0, max: 1e15 };
  const found: BundleAutoscaler = {
    intervalUs: node.number('interval_us', time, 0),
    upWindowUs: node.number('scale_up_stabilization_window_us', time, 0),
    downWindowUs: node.number('scale_down_stabilization_window_us', time, 0),
    delayS: delayOf(node, 'hpa_scrape_delay'),
    kvThreshold: analyzer?.number('kv_cache_threshold', { above: 0, max: 1 }, 0.8) ?? 0.8,
    upThreshold: analyzer?.number('scale_up_threshold', { above: 0 }, 0.8) ?? 0.8,
    downBoundary: analyzer?.number('scale_down_boundary', { above: 0 }, 0.4) ?? 0.4,
    inputTokens: analyzer?.number('avg_input_tokens', { above: 0 }, 512) ?? 512,
  };
  analyzer?.close();
  node.close();
  return found;
}

function nodePoolsOf(pools: readonly SpecNode[]): NodePool[] | undefined {
  if (pools.length === 0) return undefined;
  return pools.map((pool) => {
    const count = { min: 0, max: 1024 };
    const found: NodePool = {
      name: pool.text('name'),
      gpuType: pool.text('gpu_type'),
      nodes: pool.integer('initial_nodes', count, 0),
      gpusPerNode: pool.integer('gpus_per_node', { min: 1, max: 1024 }, 1),
    };
    for (const key of ['min_nodes', 'max_nodes']) pool.integer(key, count, 0);
    for (const key of ['gpu_memory_gib', 'cost_per_hour']) pool.number(key, { min: 0 }, 0);
    delayOf(pool, 'provisioning_delay');
    pool.close();
    return found;
  });
}

function lifecycleOf(node: SpecNode | undefined): Partial<Bundle> {
  if (node === undefined) return {};
  const found = { loadingDelayS: delayOf(node, 'loading_delay') };
  const warmStart = node.flag('warm_start_initial_instances');
  node.close();
  return warmStart === undefined ? found : { ...found, warmStart };
}

function policyOf(node: SpecNode | undefined): string | undefined {
  const policy = textOf(node, 'policy');
  node?.close();
  return policy;
}

function admissionOf(node: SpecNode | undefined): Partial<Bundle> {
  if (node === undefined) return {};
  const fields = given<Bundle>({
    admission: textOf(node, 'policy'),
    bucketCapacity: node.optionalNumber('token_bucket_capacity', { above: 0 }),
    bucketRefillRate: node.optionalNumber('token_bucket_refill_rate', { above: 0 }),
    shedThreshold: node.optionalInteger('tier_shed_threshold', { min: 0 }),
    shedMinPriority: node.optionalInteger('tier_shed_min_priority', { min: -100, max: 100 }),
    queueThreshold: node.optionalNumber('gaie_qd_threshold', { above: 0 }),
    kvThreshold: node.optionalNumber('gaie_kv_threshold', { above: 0, max: 1 }),
    priorities: numbersOf(node, 'slo_priorities', { min: -100, max: 100 }),
    sloTargetsUs: numbersOf(node, 'slo_targets', { above: 0 }),
  });
  node.close();
  return fields;
}

function routingOf(node: SpecNode | undefined): Partial<Bundle> {
  if (node === undefined) return {};
  const scorers: Record<string, number> = {};
  for (const entry of node.list('scorers')) {
    scorers[entry.text('name')] = entry.number('weight', { above: 0 }, 1);
    entry.close();
  }
  const fields = given<Bundle>({
    routing: textOf(node, 'policy'),
    scorers: Object.keys(scorers).length === 0 ? undefined : scorers,
  });
  node.close();
  return fields;
}
