/**
 * Each field of a deployment file, set where its feature is off: the run prints something else, the file is refused by the
 * field, or a warning names it. A field that is read and then has no effect says something that is not so.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { TierKVError } from '../../../src/runtime/index.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-idle-'));
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

type Tree = Record<string, unknown>;

/** Like instances that take turns, with room for all blocks, no tiers, no roles, nothing that scales. */
const bare = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - {name: chat, replicas: 2, engine: {total_kv_blocks: 2000}}
workload: {preset: chatbot, rate: 30, num_requests: 20}
`;
/** Replicas that come and go by polls. */
const scaled = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - name: chat
    replicas: {min: 1, max: 3}
    engine: {total_kv_blocks: 2000}
    autoscaling: {policy: {policy: hpa, metric: concurrency, target: 4}, poll_interval_us: 200000, drain: {mode: immediate}}
workload: {preset: chatbot, rate: 30, num_requests: 20}
`;
/** Roles without a decider that uses them. */
const roles = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - {name: p, role: prefill, engine: {total_kv_blocks: 2000}}
  - {name: d, role: decode, engine: {total_kv_blocks: 2000}}
  - {name: m, engine: {total_kv_blocks: 2000}}
workload: {preset: chatbot, rate: 30, num_requests: 20}
`;

/** The file with a value at a place such as `pools.0.engine.kv_load`; what it lies in is made. */
function withField(text: string, place: string, value: unknown): string {
  const root = parse(text) as Tree;
  const keys = place.split('.');
  let into: Tree = root;
  for (const key of keys.slice(0, -1)) into = (into[key] ??= {}) as Tree;
  into[keys.at(-1)!] = value;
  return stringify(root);
}

const rows: readonly (readonly [base: string, place: string, value: unknown])[] = [
  [bare, 'models.0.kv_cache_dtype', 'fp8'],
  [bare, 'models.0.quantization', 'fp8'],
  [bare, 'models.0.latency_model', 'roofline'],
  [bare, 'models.0.moe_comm_backend', 'pplx'],
  [bare, 'models.0.dp', 2],
  [bare, 'models.0.coefficients', 'data/latency/trained-physics.json'],
  [bare, 'pools.0.replicas', { min: 1, max: 4 }],
  [bare, 'pools.0.autoscaling', { policy: { policy: 'hpa' } }],
  [bare, 'pools.0.engine.gpu_memory_utilization', 0.5],
  [bare, 'pools.0.engine.kv_offload_threshold', 0.3],
  [bare, 'pools.0.engine.ddr_gbps', 0.5],
  [bare, 'pools.0.engine.nvme_class', 'sata_ssd'],
  [bare, 'pools.0.engine.kv_load', 'always'],
  [bare, 'pools.0.engine.kv_transfer_bandwidth', 0.5],
  [bare, 'pools.0.engine.kv_transfer_base_latency', 9000],
  [bare, 'pools.0.tiers', { links: { ddrToHbm: { bandwidthBytesPerS: 2e9 } } }],
  [bare, 'control.prefill_routing', { policy: 'least-loaded' }],
  [bare, 'control.decode_routing', { policy: 'least-loaded' }],
  [bare, 'control.decider', { policy: 'always' }],
  [bare, 'control.signals.snapshot_interval_us', 20_000],
  [bare, 'control.signals.cache_signal_us', 20_000],
  [bare, 'control.shadow.model', 'approximate'],
  [bare, 'control.shadow.blocks', 5],
  [bare, 'control.shadow.event_delay_us', 900],
  [bare, 'control.shadow.speculative_ttl_us', 900],
  [bare, 'control.history.windows', 4],
  [bare, 'control.history.window_us', 50_000],
  [bare, 'control.history.burst_factor', 3],
  [bare, 'handoff.base_latency_us', 90_000],
  [bare, 'handoff.bandwidth_gb_per_s', 5],
  [bare, 'handoff.granularity', 'block'],
  [bare, 'handoff.pipelined', true],
  [roles, 'handoff.base_latency_us', 90_000],
  [roles, 'handoff.granularity', 'block'],
  [bare, 'slo.priorities', { standard: 4 }],
  [bare, 'workload.concurrency', 4],
  [bare, 'workload.think_time_ms', 500],
  [scaled, 'pools.0.autoscaling.warmup.curve', 'step'],
  [scaled, 'pools.0.autoscaling.warmup.initial_penalty_factor', 3],
  [scaled, 'pools.0.autoscaling.triggers.queue_depth', 3],
  [scaled, 'pools.0.autoscaling.triggers.sustained_us', 100],
  [scaled, 'pools.0.autoscaling.drain.timeout_us', 1000],
];

function run(text: string): { readonly metrics: string; readonly warnings: readonly string[] } {
  const file = path.join(folder, 'deployment.yaml');
  fs.writeFileSync(file, text);
  const { metrics, instances, warnings } = simulate({ file });
  return { metrics: JSON.stringify([metrics, instances]), warnings };
}

it('a file without idle fields has no warnings', () => {
  for (const text of [bare, scaled]) expect(run(text).warnings).toEqual([]);
});

it.each(rows.map(([base, place, value]) => ({ base, place, value })))('$place', ({ base, place, value }) => {
  const field = place.split('.').at(-1)!;
  const plain = run(base);
  try {
    const changed = run(withField(base, place, value));
    const names = changed.warnings.some(
      (line) => line.includes(field) || place.startsWith(line.split(' ')[0].replaceAll(/\[(\d+)\]/g, '.$1')),
    );
    expect(changed.metrics !== plain.metrics || names, `${place}: ${changed.warnings.join(' | ')}`).toBe(
      true,
    );
  } catch (error) {
    expect(error).toBeInstanceOf(TierKVError);
    expect(String(error)).toMatch(new RegExp(`${field}|concurrency`));
  }
});

it('tiers behind a link that is too slow for any load are told', () => {
  const tiers = (bytesPerS: number): object => ({
    cpu_bytes_to_use: 400_000_000,
    links: { ddrToHbm: { bandwidthBytesPerS: bytesPerS } },
  });
  expect(run(withField(bare, 'pools.0.tiers', tiers(2e9))).warnings).toEqual([]);
  expect(run(withField(bare, 'pools.0.tiers', tiers(1e6))).warnings).toEqual([
    expect.stringMatching(/pool chat: .*kv_load when-faster.*left out/),
  ]);
});

it('tiers that hold less than what is on its way there are told', () => {
  const tiers = (bytes: number): object => ({ cpu_bytes_to_use: bytes });
  expect(run(withField(bare, 'pools.0.tiers', tiers(400_000_000))).warnings).toEqual([]);
  expect(run(withField(bare, 'pools.0.tiers', tiers(40_000_000))).warnings).toEqual([
    expect.stringMatching(/pool chat: .*left out. Give ddr 250 blocks or more/),
  ]);
});
