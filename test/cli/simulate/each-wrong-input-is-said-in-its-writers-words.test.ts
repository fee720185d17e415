/**
 * What `tierkv simulate` says of a wrong value, for each setting in the three ways to write one: an option, a field of a
 * description, a key of a deployment file. The texts are in wrongInputs.golden.txt. Run with TIERKV_GOLDEN=write to write them
 * anew, and read the difference.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Command } from 'commander';
import { afterAll, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { makeProgram } from '../../../src/cli/program.ts';
import { TierKVError } from '../../../src/runtime/index.ts';
import { simulate } from '../../../src/sim/build/simulate.ts';
import type { DeploymentSpec } from '../../../src/sim/description/knobs.ts';
import { printed } from './printed.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-wrong-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

/** Each setting by its option, its field, and its key in a deployment file; `-` where it cannot be written so. */
const settings: readonly (readonly [option: string, field: string, key: string])[] = [
  ['--model', 'model', '-'],
  ['--gpu', 'hardware', 'models.0.gpu'],
  ['--tp', 'tp', 'models.0.tp'],
  ['--num-instances', '-', '-'],
  ['--workload', 'workload.preset', '-'],
  ['--rate', 'workload.rate', 'workload.rate'],
  ['--num-requests', 'workload.requests', 'workload.num_requests'],
  ['--ddr', 'tiers.ddr', 'pools.0.engine.ddr'],
  ['--nvme', 'tiers.nvme', 'pools.0.engine.nvme'],
  ['--ddr-class', 'tiers.ddrClass', 'pools.0.engine.ddr_class'],
  ['--ddr-gbps', 'tiers.ddrGbps', 'pools.0.engine.ddr_gbps'],
  ['--nvme-class', 'tiers.nvmeClass', 'pools.0.engine.nvme_class'],
  ['--nvme-gbps', 'tiers.nvmeGbps', 'pools.0.engine.nvme_gbps'],
  ['--length-range', 'workload.lengthRange', 'workload.length_range'],
  ['--dp', 'dp', 'models.0.dp'],
  ['--latency-model', 'latency.model', 'models.0.latency_model'],
  ['--coefficients', 'latency.coefficients', 'models.0.coefficients'],
  ['--alpha-coeffs', '-', '-'],
  ['--beta-coeffs', '-', '-'],
  ['--moe-comm-backend', '-', 'models.0.moe_comm_backend'],
  ['--num-speculative-tokens', 'speculation.draftTokens', 'models.0.num_speculative_tokens'],
  ['--speculative-acceptance', 'speculation.acceptance', 'models.0.speculative_acceptance'],
  ['--speculative-draft-model', 'speculation.draftModel', 'models.0.speculative_draft_model'],
  ['--speculative-draft-us', 'speculation.draftUs', 'models.0.speculative_draft_us'],
  ['--expert-imbalance', 'latency.expertImbalance', 'models.0.expert_imbalance'],
  ['-', 'latency.floor', 'models.0.floor'],
  ['-', 'latency.floor', 'models.0.floor'],
  ['--max-model-len', 'engine.maxModelTokens', 'pools.0.engine.max_model_len'],
  ['--model-config-folder', '-', '-'],
  ['--hardware-config', '-', '-'],
  ['--hbm', 'engine.kvBlocks', 'pools.0.engine.hbm'],
  ['--block-tokens', 'engine.blockTokens', 'pools.0.engine.block_tokens'],
  ['--kv-cache-dtype', '-', 'models.0.kv_cache_dtype'],
  ['--quantization', 'engine.quantization', 'models.0.quantization'],
  ['--max-loras', 'engine.maxLoras', 'pools.0.engine.max_loras'],
  ['--max-lora-rank', 'engine.maxLoraRank', 'pools.0.engine.max_lora_rank'],
  ['--lora-load-us', 'engine.loraLoadUs', 'pools.0.engine.lora_load_us'],
  ['-', 'engine.disableHybridKvCacheManager', 'models.0.disable_hybrid_kv_cache_manager'],
  ['--gpu-memory-utilization', 'engine.memoryUtilization', 'pools.0.engine.gpu_memory_utilization'],
  ['--max-num-seqs', 'engine.maxSequences', 'pools.0.engine.max_num_seqs'],
  ['--max-num-batched-tokens', 'engine.maxBatchedTokens', 'pools.0.engine.max_num_batched_tokens'],
  [
    '--long-prefill-token-threshold',
    'engine.longPrefillTokens',
    'pools.0.engine.long_prefill_token_threshold',
  ],
  ['--kv-cpu-blocks', 'tiers.hostBlocks', 'pools.0.engine.kv_cpu_blocks'],
  ['--kv-offload', 'tiers.offload', 'pools.0.engine.kv_offload'],
  ['--kv-offload-threshold', 'tiers.offloadThreshold', 'pools.0.engine.kv_offload_threshold'],
  ['--kv-transfer-bandwidth', 'tiers.loadTokensPerUs', 'pools.0.engine.kv_transfer_bandwidth'],
  ['--kv-transfer-base-latency', 'tiers.loadBaseUs', 'pools.0.engine.kv_transfer_base_latency'],
  ['--kv-offload-config', 'tiers.offloadConfig', '-'],
  ['--shared-tier', 'tiers.sharedTier', '-'],
  ['--kv-load', 'tiers.load', 'pools.0.engine.kv_load'],
  ['--eviction', 'engine.eviction', 'pools.0.engine.eviction'],
  ['--scheduler', 'engine.scheduler', 'pools.0.engine.scheduler'],
  ['--preemption-policy', 'engine.preemptionPolicy', 'pools.0.engine.preemption_policy'],
  ['--preemption-mode', 'engine.preemptionMode', 'pools.0.engine.preemption_mode'],
  ['--policy-config', 'control.policyFile', '-'],
  ['--admission-policy', 'control.admission.policy', 'control.admission.policy'],
  ['--admission-parameters', 'control.admission.parameters', '-'],
  ['--admission-latency', 'control.admissionLatencyUs', 'control.admission_latency_us'],
  ['--token-bucket-capacity', '-', '-'],
  ['--token-bucket-refill-rate', '-', '-'],
  ['--routing-latency', 'control.routingLatencyUs', 'control.routing_latency_us'],
  ['--routing-policy', 'control.routing.policy', 'control.routing.policy'],
  ['--routing-scorers', 'control.routing.scorers', '-'],
  ['--routing-parameters', 'control.routing.parameters', '-'],
  ['--snapshot-refresh-interval', 'control.snapshotUs', 'control.signals.snapshot_interval_us'],
  ['--cache-signal-delay', 'control.cacheSignalUs', 'control.signals.cache_signal_us'],
  ['--model-autoscaler-interval-us', '-', '-'],
  ['--counterfactual-k', '-', '-'],
  ['--saturation-detector', '-', '-'],
  ['--queue-depth-threshold', '-', '-'],
  ['--kv-cache-util-threshold', '-', '-'],
  ['--max-concurrency', '-', '-'],
  ['--concurrency-kind', '-', '-'],
  ['--max-token-concurrency', '-', '-'],
  ['--dispatch-order', '-', '-'],
  ['--slo-targets', '-', '-'],
  ['--fairness-policy', '-', '-'],
  ['--gateway-parameters', '-', '-'],
  ['--max-gateway-queue-depth', '-', '-'],
  ['--per-band-capacity', '-', '-'],
  ['--usage-limit-threshold', '-', '-'],
  ['--request-ttl', 'gateway.ttlUs', 'control.gateway.ttl_us'],
  ['--dispatch-tick-interval', 'gateway.tickUs', 'control.gateway.tick_us'],
  ['--prefill-instances', 'pools.prefill', '-'],
  ['--decode-instances', 'pools.decode', '-'],
  ['--prefill-decode-instances', 'pools.instances', '-'],
  ['--pd-decider', 'pools.decider', 'control.decider.policy'],
  ['--pd-prefix-threshold', '-', '-'],
  ['--prefill-routing-scorers', '-', '-'],
  ['--decode-routing-scorers', '-', '-'],
  ['--pd-transfer-bandwidth', 'handoff.bandwidthGbPerS', 'handoff.bandwidth_gb_per_s'],
  ['--pd-transfer-granularity', 'handoff.granularity', 'handoff.granularity'],
  ['-', 'handoff.pipelined', 'handoff.pipelined'],
  ['-', 'handoff.missingOnly', 'handoff.missing_only'],
  // keys of a file alone: it says more of these sections than options do
  ['--pd-transfer-base-latency', 'handoff.baseLatencyMs', 'handoff.base_latency_us'],
  ['--shadow-kv', 'control.shadow', 'control.shadow.model'],
  ['-', '-', 'control.shadow.event_delay_us'],
  ['-', '-', 'control.history.windows'],
  ['-', '-', 'control.history.burst_factor'],
  ['-', '-', 'control.top_k'],
  ['-', '-', 'shared_tier.capacity_bytes'],
  ['-', '-', 'shared_tier.read_gb_per_s'],
  ['-', '-', 'shared_tier.lookup_us'],
  ['-', '-', 'autoscaling.mode'],
  ['-', '-', 'autoscaling.poll_interval_us'],
  ['-', '-', 'autoscaling.triggers.queue_depth'],
  ['-', '-', 'autoscaling.warmup.curve'],
  ['-', '-', 'autoscaling.decision_delay.mean_us'],
  ['-', '-', 'autoscaling.drain.mode'],
  ['-', '-', 'autoscaling.warm_start'],
  ['--concurrency', 'workload.concurrency', 'workload.concurrency'],
  ['--think-time-ms', 'workload.thinkTimeMs', 'workload.think_time_ms'],
  ['--prefix-tokens', 'workload.prefixTokens', 'workload.prefix_tokens'],
  ['--prompt-tokens', 'workload.prompt.mean', 'workload.prompt_tokens'],
  ['--prompt-tokens-stdev', 'workload.prompt.stdDev', 'workload.prompt_tokens_stdev'],
  ['--prompt-tokens-min', 'workload.prompt.min', 'workload.prompt_tokens_min'],
  ['--prompt-tokens-max', 'workload.prompt.max', 'workload.prompt_tokens_max'],
  ['--output-tokens', 'workload.output.mean', 'workload.output_tokens'],
  ['--output-tokens-stdev', 'workload.output.stdDev', 'workload.output_tokens_stdev'],
  ['--output-tokens-min', 'workload.output.min', 'workload.output_tokens_min'],
  ['--output-tokens-max', 'workload.output.max', 'workload.output_tokens_max'],
  ['--columns', '-', '-'],
  ['--workload-spec', 'workload.file', '-'],
  ['--trace-header', '-', '-'],
  ['--trace-data', '-', '-'],
  ['--seed', 'seed', '-'],
  ['--simulation-seed', '-', '-'],
  ['--jitter-seed', '-', '-'],
  ['--horizon', 'horizonUs', '-'],
  ['--timeout', 'workload.timeoutS', '-'],
  ['--profile', 'workload.profile', '-'],
  ['--session-mode', '-', '-'],
  ['--speedup', 'workload.speedup', '-'],
  ['--deployment', 'file', '-'],
  ['--set', 'set', '-'],
  ['--slo-ttft', 'targets.ttftMs', '-'],
  ['--slo-itl', 'targets.itlMs', '-'],
  ['--slo-e2e', 'targets.e2eMs', '-'],
  ['--trace-level', '-', '-'],
  ['--chrome-trace-events', '-', '-'],
  ['-', 'workload.prompt', '-'],
  ['-', 'workload.output', '-'],
];

const file = path.join(folder, 'd.yaml');
const bare = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - {name: chat, engine: {max_num_seqs: 8}}
workload: {preset: chatbot, rate: 30, num_requests: 2}
`;

type Tree = Record<string, unknown>;

function put(tree: Tree, at: string, value: unknown): Tree {
  const keys = at.split('.');
  let into = tree;
  for (const key of keys.slice(0, -1)) into = (into[key] ??= {}) as Tree;
  into[keys[keys.length - 1]] = value;
  return tree;
}

async function saidOf(act: () => unknown): Promise<string> {
  try {
    await act();
    return 'is taken';
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    const { code, field, message } = error;
    return `${code} ${field ?? '-'} | ${message}`.replaceAll(folder, '');
  }
}

const ofOption = (option: string, value: string): Promise<string> => {
  const base = { '--model': 'qwen3-14b', '--num-requests': '2', [option]: value };
  const from = ['--deployment', '--set'].includes(option) ? ['--deployment', file] : [];
  const args = Object.entries(base).filter(([flag]) => from.length === 0 || flag !== '--model');
  return saidOf(() => printed(...from, ...args.flat()));
};

const ofField = (field: string, value: unknown): Promise<string> => {
  const spec = put({ model: 'qwen3-14b', workload: { requests: 2 } }, field, value);
  return saidOf(() => simulate(spec as DeploymentSpec));
};

/** Keys that a section needs beside the one at fault. */
const beside: readonly (readonly [key: string, value: unknown])[] = [
  ['autoscaling.policy.policy', 'hpa'],
  ['control.gateway.policy', 'banded'],
  ['shared_tier.capacity_bytes', 1e12],
  ['shared_tier.read_gb_per_s', 1],
  ['shared_tier.write_gb_per_s', 1],
];

const ofKey = (key: string, value: unknown): Promise<string> => {
  const [section] = key.match(/^(autoscaling|control\.gateway|shared_tier)\./) ?? ['-'];
  const tree = parse(bare) as Tree;
  for (const [other, of] of beside) if (other.startsWith(section)) put(tree, other, of);
  fs.writeFileSync(file, stringify(put(tree, key, value)));
  return saidOf(() => simulate({ file }));
};

const golden = path.join(import.meta.dirname, 'wrongInputs.golden.txt');
const helpGolden = path.join(import.meta.dirname, 'help.golden.txt');

function expectGolden(at: string, text: string): void {
  if (process.env.TIERKV_GOLDEN === 'write') fs.writeFileSync(at, text);
  expect(text.split('\n')).toEqual(fs.readFileSync(at, 'utf8').split('\n'));
}

it('each wrong value, in each way of writing', async () => {
  const lines: string[] = [];
  const elsewhere: string[] = [];
  /** An error names the place that its writer knows; of a file that is not there it names the path. */
  const told = (name: string, value: unknown, said: string): void => {
    const line = `${name} ${typeof value === 'string' && name.startsWith('--') ? value : JSON.stringify(value)}`;
    lines.push(`${line}: ${said}`);
    if (said.startsWith('TKV_IO') && said.includes(`${value}`)) return;
    if (said !== 'is taken' && !said.includes(name.replace(/\.(\d+)\./, '[$1].')))
      elsewhere.push(`${line}: ${said}`);
  };
  for (const [option, field, key] of settings) {
    if (option !== '-') {
      for (const value of ['many', '-1', '1.5.2']) {
        fs.writeFileSync(file, bare);
        told(option, value, await ofOption(option, value));
      }
    }
    if (field !== '-') {
      for (const value of ['many', -1, true, { deep: 1 }]) {
        told(field, value, await ofField(field, value));
      }
    }
    if (key !== '-') {
      for (const value of ['many', -1, '1.5.2', true, [1]]) {
        told(key, value, await ofKey(key, value));
      }
    }
  }
  expect(elsewhere).toEqual([]);
  expectGolden(golden, `${lines.join('\n')}\n`);
});

it('the help text, of most calls and of all', async () => {
  const texts = [];
  for (const flag of ['--help', '--help-all']) {
    let text = '';
    const { program } = await makeProgram(['simulate']);
    const command = program.commands.find((each) => each.name() === 'simulate') as Command;
    command.configureOutput({ writeOut: (more) => (text += more), getOutHelpWidth: () => 100 });
    await program.parseAsync(['simulate', flag], { from: 'user' }).catch(() => {});
    texts.push(`$ tierkv simulate ${flag}\n${text}`);
  }
  expectGolden(helpGolden, texts.join('\n'));
});
