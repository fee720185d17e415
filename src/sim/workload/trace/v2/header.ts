/**
 * Reading the header of a TraceV2 pair, strictly: a key that the format does not have is an error. Sections
 * that only a server or an engine uses are checked for their keys and left to their users.
 */

import { readYaml, type SpecNode } from '../../spec/reader.ts';
import { TRACE_VERSION } from './write.ts';

export interface TraceHeader {
  readonly version: number;
  readonly mode: 'generated' | 'real' | 'replayed';
  readonly warmUpRequests: number;
  readonly workloadSeed: bigint | undefined;
  readonly accumulate: boolean;
}

const SECTIONS: Readonly<Record<string, readonly string[]>> = {
  server: [
    'type',
    'model',
    'tensor_parallel',
    'max_num_seqs',
    'block_size',
    'gpu_memory_utilization',
    'max_model_len',
  ],
  network: ['measured_rtt_ms'],
  observed_kv_metrics: [
    'source',
    'hit_rate',
    'block_hits',
    'block_queries',
    'read_time_total',
    'write_time_total',
    'vllm_commit',
  ],
  kv_offload: [
    'cpu_bytes_to_use',
    'per_block_bytes',
    'block_size',
    'blocks_per_chunk',
    'tokens_per_hash',
    'eviction_policy',
    'offload_prompt_only',
    'self_describing_kv_events',
  ],
};
const TIER_KEYS = [
  'type',
  'root_dir',
  'n_read_threads',
  'n_write_threads',
  'locality',
  'enable_kv_events',
  'direct_io',
  'device_class',
  'read_bandwidth',
  'write_bandwidth',
  'base_latency',
  'saturation_queue_depth',
  'single_transfer_fraction',
  'latency_jitter_stddev',
];

function closeSection(root: SpecNode, name: string): void {
  const section = root.section(name);
  if (section === undefined) return;
  for (const key of SECTIONS[name]) section.has(key);
  if (name === 'kv_offload') {
    for (const tier of section.list('secondary_tiers')) {
      for (const key of TIER_KEYS) tier.has(key);
      tier.close();
    }
  }
  section.close();
}

/** @throws {TierKVError} TKV_INPUT with file, line and key. */
export function readTraceHeader(text: string, file: string): TraceHeader {
  const root = readYaml(text, file);
  const version = root.integer('trace_version', { min: 1 }, 0);
  if (version > TRACE_VERSION || version === 0) {
    throw root.error(
      'trace_version',
      version === 0 ? 'is missing' : `is ${version}`,
      `Versions 1 to ${TRACE_VERSION} can be read`,
    );
  }
  if (root.text('time_unit', 'microseconds') !== 'microseconds') {
    throw root.error('time_unit', `is "${root.text('time_unit')}"`, 'Only microseconds can be read');
  }
  const header: TraceHeader = {
    version,
    mode: root.choice('mode', ['generated', 'real', 'replayed']),
    warmUpRequests: root.integer('warm_up_requests', { min: 0 }, 0),
    workloadSeed: root.has('workload_seed') ? root.int64('workload_seed', 0n) : undefined,
    accumulate: root.choice('session_context_growth', ['', 'accumulate'], '') === 'accumulate',
  };
  for (const key of ['created_at', 'workload_spec']) root.text(key);
  for (const name of Object.keys(SECTIONS)) closeSection(root, name);
  for (const name of root.section('goodput_slo_targets')?.keys() ?? []) {
    const one = root.section('goodput_slo_targets')!.section(name);
    for (const key of ['ttft_ms', 'itl_ms', 'e2e_ms']) one?.optionalNumber(key, { min: 0 });
    one?.close();
  }
  root.close();
  return header;
}
