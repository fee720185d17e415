/**
 * Deployments with tiers drawn from a seed, for what choosing between loading and computing gives: links of 0.1 to
 * 50 GB/s, several models, GPUs, memories, loads and chats.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { simulate } from '../../../src/sim/build/simulate.ts';

export type Load = 'when-faster' | 'always' | 'without';

/** Uniform from 0 to 1, by a seed. */
function drawing(seed: number): () => number {
  let state = (seed * 2654435761 + 0x9e3779b9) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface Drawn {
  readonly about: string;
  readonly yaml: (load: Load) => string;
}

/** The deployment of that seed. @param share of its sessions */
export function draw(seed: number, share = 1): Drawn {
  const uniform = drawing(seed);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(uniform() * from.length)];
  const between = (least: number, most: number): number =>
    Math.exp(Math.log(least) + uniform() * Math.log(most / least));
  const [model, tp, work] = pick([
    ['qwen3-14b', 1, 1] as const,
    ['llama-3.1-8b-instruct', 1, 1.8] as const,
    ['qwen2.5-7b-instruct', 1, 2] as const,
    ['qwen3-32b', 2, 0.9] as const,
    ['mistral-nemo-instruct-2407', 1, 1.2] as const,
  ]);
  const hardware = pick(['H100', 'A100-SXM', 'H200']);
  const latency = pick(hardware === 'H100' ? ['roofline', 'calibrated', 'trained-physics'] : ['roofline']);
  const blocks = Math.round(between(1000, 8000));
  const replicas = pick([1, 2]);
  const bandwidth = between(0.1, 50);
  const hasDisk = uniform() < 0.4;
  const diskBandwidth = Math.min(bandwidth, between(0.1, 10));
  const rate = between(0.3, 5) * work * replicas;
  const sessions = Math.round(between(60, 160));
  const prompt = Math.log(between(150, 1500));
  const output = Math.round(between(60, 400));
  const rounds = pick([2, 4, 6]);
  const think = Math.round(between(2e6, 30e6));
  const prefix = pick([0, 512, 2048]);
  const seats = pick([32, 128, 256]);
  const about =
    `${model} ${hardware} ${latency} x${replicas}, ${blocks} blocks, link ${bandwidth.toFixed(2)} GB/s` +
    `${hasDisk ? `, disk ${diskBandwidth.toFixed(2)}` : ''}, rate ${rate.toFixed(2)}, prompt ${Math.round(Math.exp(prompt))}, ` +
    `output ${output}, rounds ${rounds}, think ${(think / 1e6).toFixed(0)} s`;
  const link = (gb: number): string => `{baseLatencyUs: 10, bandwidthBytesPerS: ${Math.round(gb * 1e9)}}`;
  const yaml = (load: Load): string => `version: 1
seed: ${seed}
models:
  - {name: ${model}, hardware: ${hardware}, tp: ${tp}, latency_model: ${latency}}
pools:
  - name: chat
    replicas: ${replicas}
    engine: {total_kv_blocks: ${blocks}, max_num_seqs: ${seats}, preemption_mode: recompute${load === 'without' ? '' : `, kv_load: ${load}`}}
${
  load === 'without'
    ? ''
    : `    tiers:
      cpu_bytes_to_use: 40000000000
${hasDisk ? `      secondary_tiers:\n        - {type: fs, read_bandwidth: ${diskBandwidth * 1000}, write_bandwidth: ${diskBandwidth * 1000}, capacity_bytes: 400000000000}\n` : ''}      links:
        hbmToDdr: ${link(bandwidth)}
        ddrToHbm: ${link(bandwidth)}
`
}control:
  routing: {policy: weighted, scorers: {precise-prefix-cache: 1, active-requests: 2}}
workload:
  spec:
    version: "2"
    aggregate_rate: ${rate}
    num_requests: ${Math.round(sessions * share) * rounds}
    clients:
      - id: talk
        tenant_id: acme
        slo_class: standard
        rate_fraction: 1
${prefix === 0 ? '' : `        prefix_group: system\n        prefix_length: ${prefix}\n`}        arrival: {process: poisson}
        input_distribution: {type: lognormal, params: {mu: ${prompt}, sigma: 0.7, max: 8000}}
        output_distribution: {type: exponential, params: {mean: ${output}}}
        reasoning:
          multi_turn: {max_rounds: ${rounds}, think_time_us: ${think}, context_growth: accumulate}
`;
  return { about, yaml };
}

/** Mean TTFT in milliseconds under each way. */
export function meanTtftMs(drawn: Drawn, load: Load): number {
  const folder = mkdtempSync(join(tmpdir(), 'load-family-'));
  try {
    const file = join(folder, 'deployment.yaml');
    writeFileSync(file, drawn.yaml(load));
    return simulate({ file }).metrics.ttft_mean_ms;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
