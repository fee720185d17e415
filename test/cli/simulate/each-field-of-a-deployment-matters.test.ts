/**
 * Each field that the reader of a deployment file asks for changes a run, or is declared here to change none,
 * with its reason. A field that is read and then has no effect says something that is not so.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SpecNode } from '../../../src/sim/description/fields.ts';
import { printed } from './printed.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-fields-'));
});
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

/** One pool with tiers, all stages, short prompts that share prefixes, little memory. */
const plain = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - name: chat
    replicas: 2
    engine: {total_kv_blocks: 120, max_num_seqs: 8, max_num_batched_tokens: 256}
    tiers:
      cpu_bytes_to_use: 400000000
      secondary_tiers: [{type: fs, capacity_bytes: 400000000, device_class: nvme_gen4}]
      links: {ddrToHbm: {bandwidthBytesPerS: 2.0e9}}
control:
  admission: {policy: token-bucket, capacity: 9000, refill_rate: 2000}
  priority: {policy: slo-class}
  routing: {policy: weighted, scorers: {shadow-prefix: 2, precise-prefix-cache: 2, queue-depth: 1}}
  gateway: {policy: banded, detector: concurrency, max_concurrency: 4}
  signals: {snapshot_interval_us: 20000}
  shadow: {model: speculative}
  history: {windows: 4}
seed: 5
horizon_us: 60000000
workload: {preset: chatbot, rate: 12, num_requests: 60, prefix_tokens: 200}
slo: {ttft: {default: 300ms}, itl: {default: 20ms}, e2e: {default: 3s}}
`;

/** A prompt's KV goes over a slow link to a decode pool. */
const split = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - {name: p, role: prefill, engine: {total_kv_blocks: 2000, max_num_batched_tokens: 256}}
  - {name: d, role: decode, engine: {total_kv_blocks: 2000}}
  - {name: other, role: prefill, engine: {total_kv_blocks: 2000}}
  - {name: last, role: decode, engine: {total_kv_blocks: 2000}}
control:
  decider: {policy: always}
  prefill_routing: {policy: least-loaded}
  decode_routing: {policy: least-loaded}
handoff: {bandwidth_gb_per_s: 0.5, granularity: chunk}
seed: 5
workload: {preset: summarization, rate: 2, num_requests: 30}
`;

/** Replicas that come and go with a wave of requests. */
const scaled = `version: 1
models:
  - {name: qwen3-14b, hardware: H100}
pools:
  - name: elastic
    replicas: {min: 1, max: 4, initial: 2}
    engine: {max_num_seqs: 4}
    autoscaling:
      policy: {policy: hpa, metric: concurrency, target: 4}
      poll_interval_us: 2000000
      decision_delay: {mean_us: 100000}
      provisioning_delay: {mean_us: 300000}
      model_load_time: {mean_us: 300000}
      warmup: {duration_us: 4000000, curve: linear, initial_penalty_factor: 3}
      drain: {mode: wait, timeout_us: 0}
      triggers: {}
seed: 5
workload: {preset: chatbot, rate: 4, num_requests: 60}
slo: {ttft: {default: 100ms}}
`;

const two = `version: 1
models:
  - {name: a, config: qwen3-14b, hardware: H100, tp: 2}
  - {name: b, config: llama-3.1-8b-instruct, hardware: H100}
pools:
  - {name: first, model: a, engine: {total_kv_blocks: 2000}}
  - {name: second, model: a, engine: {total_kv_blocks: 2000}}
  - {name: third, model: b, engine: {total_kv_blocks: 2000}}
control:
  routing: {policy: round-robin}
workload: {preset: chatbot, rate: 4, num_requests: 30}
`;

/** Instances that share a server too small for all, and that take turns. */
const shared = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
shared_tier:
  capacity_bytes: 100000000
  read_gb_per_s: 2
  write_gb_per_s: 2
  instance_gb_per_s: 1
  lookup_us: 300
  delay_us: 200
pools:
  - name: chat
    replicas: 2
    engine: {total_kv_blocks: 120, max_num_seqs: 8, max_num_batched_tokens: 256, kv_load: always}
control:
  routing: {policy: round-robin}
seed: 5
workload: {preset: chatbot, rate: 12, num_requests: 60, prefix_tokens: 600}
`;

const bases = { plain, split, scaled, two, shared };

interface Row {
  readonly field: string;
  readonly base: keyof typeof bases;
  readonly set: string;
  /** Set in the base and in the changed file. */
  readonly also?: readonly string[];
}

const row = (base: keyof typeof bases, set: string, ...also: string[]): Row => {
  const field = set.slice(0, set.indexOf('=')).replaceAll(/\[\d+\]/g, '[]');
  return { field, base, set, also };
};

const trigger = (set: string, ...also: string[]): Row =>
  row(
    'scaled',
    `pools[0].autoscaling.triggers.${set}`,
    'pools[0].autoscaling.mode=event',
    // one there must be, and this one never fires
    'pools[0].autoscaling.triggers.queue_depth=1000000',
    ...also,
  );

/** Room for one kind of pressure: no gateway, no admission control, a high rate. */
const pressed = ['control.gateway=null', 'control.admission={policy: always-admit}', 'workload.rate=50'];
const small = ['pools[0].tiers=null', 'pools[0].engine.total_kv_blocks=80', ...pressed];
const host = ['pools[0].tiers=null', 'pools[0].engine.kv_cpu_blocks=300', ...pressed];
const scaling = 'pools[0].autoscaling';
const speculating = ['models[0].num_speculative_tokens=3', 'models[0].speculative_acceptance=0.7'];

const rows: readonly Row[] = [
  row('plain', 'models[0].config=llama-3.1-8b-instruct'),
  row('plain', 'models[0].hardware=A100-80'),
  row('plain', 'models[0].gpu=A100-80', 'models[0].hardware=null'),
  row('plain', 'pools[0].engine.hbm=0.2GiB', 'pools[0].engine.total_kv_blocks=null', ...pressed),
  row('plain', 'pools[0].engine.block_tokens=32', 'pools[0].engine.total_kv_blocks=60', ...pressed),
  row('plain', 'pools[0].engine.ddr=1GiB', ...small),
  row('plain', 'pools[0].engine.nvme=300', ...small),
  row('plain', 'models[0].tp=4'),
  row('plain', 'models[0].kv_cache_dtype=fp8'),
  row('plain', 'models[0].quantization=fp8'),
  row('plain', 'models[0].disable_hybrid_kv_cache_manager=true', 'models[0].config=gpt-oss-20b', ...pressed),
  row('plain', 'models[0].num_speculative_tokens=3', 'models[0].speculative_acceptance=0.7'),
  row(
    'plain',
    'models[0].speculative_acceptance=0.9',
    'models[0].num_speculative_tokens=3',
    'models[0].speculative_acceptance=0.5',
  ),
  row('plain', 'models[0].speculative_draft_model=qwen3-0.6b', ...speculating),
  row('plain', 'models[0].speculative_draft_us=900', ...speculating),
  row('plain', 'models[0].expert_imbalance=2', 'models[0].config=mixtral-8x7b-v0.1', 'models[0].dp=2'),
  row('scaled', 'pools[0].engine.max_loras=290'),
  row('scaled', 'pools[0].engine.max_lora_rank=580', 'pools[0].engine.max_loras=8'),
  row('plain', 'models[0].dp=2', 'models[0].config=mixtral-8x7b-v0.1'),
  row('plain', 'models[0].latency_model=roofline'),
  row('plain', 'models[0].floor=false', 'models[0].latency_model=roofline'),
  row('plain', 'pools[0].replicas=3'),
  row('scaled', 'pools[0].replicas.min=2'),
  row('scaled', 'pools[0].replicas.max=2'),
  row('scaled', 'pools[0].replicas.initial=1'),
  row('split', 'pools[2].role=decode'),
  row('two', 'pools[1].model=b'),
  row('plain', 'pools[0].engine.block_size_in_tokens=32'),
  row('plain', 'pools[0].engine.total_kv_blocks=200'),
  row('scaled', 'pools[0].engine.gpu_memory_utilization=0.45'),
  row('plain', 'pools[0].engine.max_model_len=500'),
  row('plain', 'pools[0].engine.max_num_seqs=2'),
  row('plain', 'pools[0].engine.max_num_batched_tokens=64'),
  row('plain', 'pools[0].engine.long_prefill_token_threshold=64'),
  row('plain', 'pools[0].engine.scheduler=sjf', ...pressed),
  row('plain', 'pools[0].engine.preemption_mode=restart', ...small),
  row('plain', 'pools[0].engine.eviction=fifo', ...small),
  row('plain', 'pools[0].engine.ddr_gbps=0.5', ...pressed),
  row('plain', 'pools[0].engine.ddr_class=s3', ...pressed),
  row('plain', 'pools[0].engine.nvme_gbps=0.5', 'pools[0].engine.nvme=300', ...small),
  row('plain', 'pools[0].engine.nvme_class=s3', 'pools[0].engine.nvme=300', ...small),
  row('plain', 'pools[0].engine.kv_offload=eager', ...pressed),
  row('plain', 'pools[0].engine.kv_offload_threshold=0.3', ...pressed),
  row(
    'plain',
    'pools[0].engine.kv_load=always',
    'pools[0].tiers.links.ddrToHbm.bandwidthBytesPerS=1.0e8',
    ...pressed,
  ),
  row('plain', 'pools[0].engine.kv_cpu_blocks=30', ...host),
  row('plain', 'pools[0].engine.kv_transfer_bandwidth=0.5', ...host, 'pools[0].engine.kv_load=always'),
  row('plain', 'pools[0].engine.kv_transfer_base_latency=9000', ...host, 'pools[0].engine.kv_load=always'),
  row('plain', 'pools[0].tiers.cpu_bytes_to_use=20000000', ...pressed),
  row('plain', 'control.admission.policy=reject-all', 'control.admission={policy: always-admit}'),
  row('plain', 'control.routing.policy=round-robin', 'control.routing={policy: least-loaded}'),
  row('split', 'control.prefill_routing.policy=always-busiest', 'workload.rate=40'),
  row('split', 'control.decode_routing.policy=always-busiest'),
  row('split', 'control.decider.policy=never'),
  row('plain', 'control.gateway.tick_us=500000'),
  row(
    'plain',
    'control.gateway.ttl_us=200000',
    'workload.rate=100',
    'control.admission={policy: always-admit}',
  ),
  row(
    'plain',
    'control.signals.snapshot_interval_us=3000000',
    'control.routing={policy: least-loaded}',
    ...pressed,
  ),
  row('plain', 'control.signals.cache_signal_us=5000000', 'control.gateway=null'),
  row('plain', 'control.shadow.model=none'),
  row('plain', 'control.shadow.blocks=5', 'control.shadow.model=approximate'),
  row('plain', 'control.shadow.event_delay_us=900000', 'control.shadow.model=events', ...pressed),
  row('plain', 'control.shadow.speculative_ttl_us=1', 'control.shadow.event_delay_us=900000', ...pressed),
  row('plain', 'control.top_k=1'),
  row('plain', 'control.admission_latency_us=5000'),
  row('plain', 'control.routing_latency_us=5000'),
  row('split', 'handoff.base_latency_us=90000'),
  row('split', 'handoff.bandwidth_gb_per_s=5'),
  row('split', 'handoff.granularity=block'),
  row('split', 'handoff.pipelined=true'),
  row('split', 'handoff.missing_only=true', 'workload.prefix_tokens=2000'),
  row('scaled', `${scaling}.mode=event`, `${scaling}.triggers.queue_depth=1000000`),
  row('scaled', `${scaling}.poll_interval_us=500000`),
  row('scaled', `${scaling}.up_window_us=6000000`),
  row('scaled', `${scaling}.down_window_us=60000000`),
  row('scaled', `${scaling}.decision_delay.mean_us=3000000`),
  row('scaled', `${scaling}.decision_delay.stddev_us=300000`),
  row('scaled', `${scaling}.provisioning_delay.mean_us=3000000`),
  row('scaled', `${scaling}.provisioning_delay.stddev_us=300000`),
  row('scaled', `${scaling}.model_load_time.mean_us=3000000`),
  row('scaled', `${scaling}.model_load_time.stddev_us=300000`),
  row('scaled', `${scaling}.warm_start=false`),
  row('scaled', `${scaling}.warmup.duration_us=40000`),
  row('scaled', `${scaling}.warmup.curve=step`),
  row('scaled', `${scaling}.warmup.initial_penalty_factor=1`),
  row('scaled', `${scaling}.drain.mode=immediate`),
  row('scaled', `${scaling}.drain.timeout_us=1000`),
  trigger('queue_depth=0'),
  trigger('slo_attainment=1'),
  trigger('utilization_high=0.0001'),
  trigger('utilization_low=0.9'),
  trigger('rate_change=1.1'),
  trigger('sustained_us=4000000', `${scaling}.triggers.utilization_high=0.0001`),
  row('shared', 'shared_tier.capacity_bytes=30000000'),
  row('shared', 'shared_tier.read_gb_per_s=0.1'),
  row('shared', 'shared_tier.write_gb_per_s=0.1'),
  row('shared', 'shared_tier.instance_gb_per_s=0.1'),
  row('shared', 'shared_tier.lookup_us=90000'),
  row('shared', 'shared_tier.delay_us=90000'),
  row('plain', 'seed=6'),
  row('plain', 'horizon_us=2000000'),
  row('plain', 'workload.preset=summarization'),
  row('plain', 'workload.rate=3'),
  row('plain', 'workload.num_requests=50'),
  row('plain', 'workload.prefix_tokens=100'),
  row('plain', 'workload.length_range=0.8'),
  row('plain', 'slo.ttft.default=1ms'),
  row('plain', 'slo.itl.default=1ms'),
  row('plain', 'slo.e2e.default=1ms'),
];

/** Fields that change no run, or that no run of these files can show, each with its reason. */
const inert: Readonly<Record<string, string>> = {
  version: 'one version there is',
  'shared_tier.schema': 'what wrote the figures',
  'shared_tier.date': 'when they were measured',
  'shared_tier.server': 'on what they were measured',
  'models[].name': 'how requests name it; a name without a pool is refused',
  'models[].coefficients': 'a file of a latency model, which has tests of its own',
  'pools[].engine.lora_load_us': 'these requests have no adapters; loads have tests of their own',
  'models[].moe_comm_backend': 'of mixtures of experts, whose latency model has tests of its own',
  'pools[].engine.preemption_policy': 'goes by SLO classes; these requests have one',
  'control.priority.policy': 'goes by SLO classes; these requests have one',
  'control.gateway.policy': 'one gateway there is',
  'pools[].autoscaling.policy.policy': 'each policy has tests of its own',
  'pools[].name': 'how decisions name it',
  'control.history.window_us': 'what policies with a memory read; none of these files has one',
  'control.history.windows': 'what policies with a memory read; none of these files has one',
  'control.history.burst_factor': 'what policies of tenants read; these requests have none',
  'workload.file': 'another workload than a preset',
  'workload.spec': 'another workload than a preset',
};
/** Lists and maps that a reader of their own checks: tiers, links, parameters of policies. */
const elsewhere = [
  /^pools\[\]\.tiers\.(?!cpu_bytes_to_use)/,
  /\.policy\.(?!policy$)/,
  /^control\.(admission|priority|routing|prefill_routing|decode_routing|decider|gateway)\.(?!policy|tick_us|ttl_us)/,
  /^workload\.(concurrency|think_time_ms|(prompt|output)_tokens.*)$/,
];

const runs = new Map<string, Promise<string>>();

/** What a base gives: many rows change the same one. */
function baseRun(base: keyof typeof bases, also: readonly string[]): Promise<string> {
  const key = JSON.stringify([base, also]);
  const found = runs.get(key) ?? run(base, ...also);
  runs.set(key, found);
  return found;
}

async function run(base: keyof typeof bases, ...settings: string[]): Promise<string> {
  const file = path.join(folder, `${base}.yaml`);
  fs.writeFileSync(file, bases[base]);
  const [decisions, requests] = ['decisions.jsonl', 'requests.jsonl'].map((name) => path.join(folder, name));
  const set = settings.flatMap((setting) => ['--set', setting]);
  const text = await printed('--deployment', file, ...set, '--decisions', decisions, '--requests', requests);
  // the first row of a file says what it was made of
  const rowsOf = (name: string): string => fs.readFileSync(name, 'utf8').replace(/^.*\n/, '');
  return [text, rowsOf(decisions), rowsOf(requests)].join('\n');
}

describe('each field of a deployment file', () => {
  it.each(rows.map((each) => [each.set, each] as const))(
    'changes a run: %s',
    async (_, { base, set, also = [] }) => {
      expect(await run(base, ...also, set)).not.toBe(await baseRun(base, also));
    },
  );

  it('is in the table, or declared to change nothing', async () => {
    const asked = new Set<string>();
    const methods = ['has', 'text', 'flag', 'optionalNumber', 'int64', 'section', 'list', 'plain'] as const;
    const kept = methods.map((name) => SpecNode.prototype[name]);
    for (const [i, name] of methods.entries()) {
      Object.defineProperty(SpecNode.prototype, name, {
        configurable: true,
        writable: true,
        value(this: SpecNode, key: string, ...rest: unknown[]) {
          asked.add(`${this.path === '' ? '' : `${this.path}.`}${key}`.replaceAll(/\[\d+\]/g, '[]'));
          return (kept[i] as (...all: unknown[]) => unknown).call(this, key, ...rest);
        },
      });
    }
    try {
      for (const base of Object.keys(bases)) await run(base as keyof typeof bases);
    } finally {
      for (const [i, name] of methods.entries()) SpecNode.prototype[name] = kept[i] as never;
    }
    const known = new Set([...rows.map(({ field }) => field), ...Object.keys(inert)]);
    const own =
      /^(version|models\[\]|pools|control|handoff|shared_tier|autoscaling|workload|slo|seed|horizon_us)\b/;
    const leaves = [...asked].filter((field) => {
      const isParent = [...asked, ...known].some(
        (other) => other.startsWith(`${field}.`) || other.startsWith(`${field}[`),
      );
      return own.test(field) && !/^models\.|^autoscaling/.test(field) && !isParent;
    });
    const missing = leaves.filter(
      (field) => !known.has(field) && !elsewhere.some((each) => each.test(field)),
    );
    expect(missing.sort()).toEqual([]);
  });
});
