/**
 * Small valid inputs, one for each kind of file that a command reads. The fuzzer starts from them.
 */

import { readFileSync } from 'node:fs';
import { KVManager, LogWriter, type ManagerConfig, Outcome } from '../../src/runtime/index.ts';
import { LineCheck } from '../../src/runtime/log/decisionSink.ts';
import { failingProgram, prefixBundle, recordedRun } from '../gateway/recordedRun.ts';

const shipped = (name: string): string => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8');
const lines = (count: number, line: (i: number) => unknown): string =>
  Array.from({ length: count }, (_, i) => `${JSON.stringify(line(i))}\n`).join('');
const csv = (header: string, count: number, row: (i: number) => readonly unknown[]): string =>
  `${header}\n${Array.from({ length: count }, (_, i) => `${row(i).join(',')}\n`).join('')}`;

const specs = 'test/sim/workload/fixtures/';
const links = { hbmToDdr: { baseLatencyUs: 7, bandwidthBytesPerS: 1e10 } };
const sizes = [1e4, 1e6].map((bytes) => ({ bytes, latencyUs: 5 + bytes / 1e4 }));

export interface InputKind {
  readonly name: string;
  /** With the suffix that a command knows it by. */
  readonly file: string;
  readonly good: string;
  /** Gives a damaged text the checks that it must have, so that what lies behind them is reached too. */
  readonly mend?: (text: string) => string;
  /** Command lines that read the file. */
  readonly commands: readonly ((file: string, out: string) => readonly string[])[];
}

/** The log of a gateway on a few random inputs, with a queue, a program that fails and a shadow. */
const gatewayLog = `${(
  await recordedRun(
    {
      control: { gateway: { policy: 'banded', detector: 'concurrency', maxConcurrency: 2, maxDepth: 3 } },
      queue: { tickUs: 1000, ttlUs: 30_000 },
      policy: failingProgram,
      shadows: [{ name: 'prefix', bundle: prefixBundle }],
    },
    1,
    60,
  )
).lines.join('\n')}\n`;

const describe = (file: string): string[] => ['workload', 'describe', file];
const convert = (file: string, out: string): string[] => [
  'workload',
  'convert',
  file,
  '--to',
  'tracev2',
  '-o',
  out,
];
const predict = (option: string) => (file: string) => [
  'latency',
  'predict',
  '--model',
  'qwen3-14b',
  option,
  file,
  '--batch',
  'decode=8@512,prefill=100',
];
const replay = (file: string): string[] => ['replay', file, '--driver', 'modeled'];

/** The log of a manager that serves a few requests over two small tiers. */
function recordedLog(): string {
  let log = '';
  const config: ManagerConfig = { unitBytes: [64], hbm: { capacityBytes: 512 }, ddr: { capacityBytes: 512 } };
  const writer = new LogWriter(config, { log: (text) => (log += text) });
  const manager = new KVManager(config, writer);
  const endJobs = (nowUs: number): void => {
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, nowUs, 7, 9);
    }
  };
  for (let request = 0; request < 8; request++) {
    const nowUs = request * 1000;
    const keys = Uint32Array.from({ length: 16 }, (_, i) => (i >> 2) + 10 * (request % 4) + 1);
    const sequence = manager.open(keys, 4, nowUs, 3);
    manager.load(sequence, nowUs);
    manager.allocate(sequence, 0, 4, nowUs);
    endJobs(nowUs + 10);
    for (let i = 0; i < 4; i++) {
      if (manager.openBlock(sequence, i) !== undefined)
        manager.seal(sequence, i, i + 1, keys, i * 4, 16, nowUs + 20);
    }
    endJobs(nowUs + 30);
    manager.release(sequence, nowUs + 40);
    if (request === 5) manager.evict(0, 2, nowUs + 50);
    endJobs(nowUs + 60);
  }
  writer.end();
  return log;
}

/** Each line of a log ends in a check of all lines so far. */
function withChecks(log: string): string {
  const check = new LineCheck();
  const checked = (line: string): string => {
    const body = line.slice(0, Math.max(0, line.lastIndexOf(' ')));
    return `${body} ${check.of(body)}`;
  };
  return `${log.trimEnd().split('\n').map(checked).join('\n')}\n`;
}

const spec = (name: string): InputKind => ({
  name: `spec ${name}`,
  file: 'spec.yaml',
  good: shipped(`${specs}${name}`),
  commands: [
    (file) => [...describe(file), '--num-requests', '40'],
    (file, out) => ['workload', 'generate', file, '-o', out, '--num-requests', '40'],
    (file) => ['workload', 'convert', file, '--to', 'spec'],
    (file) => [...describe(file), '--num-requests', '40', '--profile', 'ramp:from=1,to=5,duration=20'],
  ],
});

const sessionSpec = `version: "2"
aggregate_rate: 10
num_requests: 30
clients:
  - id: agent
    tenant_id: a
    rate_fraction: 1
    arrival: {process: pareto, shape: 1.4}
    input_distribution: {type: constant, params: {value: 90}}
    output_distribution: {type: constant, params: {value: 9}}
    prefixes: {reuse_probability: 0.5, groups: [{id: x, length: 40, popularity: 2}, {id: y, length: 20}]}
    session:
      agentic:
        tool_call_probability: 0.6
        max_tool_calls: 4
        tool_latency_ms: {type: exponential, params: {mean: 30}}
        tool_result_distribution: {type: constant, params: {value: 50}}
      context_growth: bounded
      context_limit: 400
      prompt_growth_rate: 0.1
      decode_variation: 0.3
  - id: walk
    rate_fraction: 1
    arrival: {process: periodic, jitter: 0.5}
    session:
      markov:
        states:
          - name: one
            input_distribution: {type: constant, params: {value: 30}}
            output_distribution: {type: constant, params: {value: 3}}
            next: {one: 2, end: 1}
  - id: rude
    tenant_id: b
    rate_fraction: 2
    arrival: {process: poisson}
    archetype: {typical_prompt_size: small, prefix_reuse_affinity: 0.4, burst_propensity: 0.2}
    behavior: {type: bursty, burst: {probability: 0.3, size: 3, interval_us: 50}, oversized: {share: 0.1, tokens: 500}}
    correlation: {burst_size: 0.5}
    output_distribution: {type: constant, params: {value: 9}}
`;

const deployment = `version: 1
models:
  - {name: large, config: llama-3.1-8b-instruct, hardware: H100, tp: 2, latency_model: calibrated, floor: true}
  - {name: small, config: qwen3-14b, hardware: H100}
pools:
  - {name: prefill, model: large, role: prefill, replicas: 1}
  - {name: decode, model: large, role: decode, replicas: 1}
  - name: chat
    model: small
    replicas: 2
    engine: {total_kv_blocks: 900, max_num_seqs: 8, scheduler: sjf, preemption_mode: recompute}
    tiers:
      cpu_bytes_to_use: 4000000000
      secondary_tiers: [{type: fs, device_class: nvme_gen4, capacity_bytes: 90000000000}]
      links: {ddrToHbm: {baseLatencyUs: 9, bandwidthBytesPerS: 20000000000}}
control:
  admission: {policy: token-bucket, capacity: 90000, refill_rate: 9000}
  routing: {policy: weighted, scorers: {queue-depth: 2, kv-utilization: 1}}
  decider: {policy: always}
  gateway: {policy: banded, detector: concurrency, maxConcurrency: 20, tick_us: 500, ttl_us: 900000}
  signals: {snapshot_interval_us: 20000, cache_signal_us: 9}
  shadow: {model: approximate, blocks: 100}
  history: {window_us: 5000000, windows: 9, burst_factor: 2}
handoff: {base_latency_us: 40, bandwidth_gb_per_s: 30, granularity: chunk, pipelined: true}
seed: 5
horizon_us: 9000000
workload: {preset: chatbot, rate: 10, num_requests: 20}
slo: {ttft: {standard: 300ms}, e2e: {standard: 9s}}
`;

export const inputKinds: readonly InputKind[] = [
  {
    name: 'mooncake trace',
    file: 'trace.jsonl',
    good: lines(12, (i) => ({
      timestamp: i * 1000,
      input_length: 1500,
      output_length: 20 + i,
      hash_ids: [0, 2 * i + 1, 2 * i + 2],
    })),
    commands: [replay, (file) => [...replay(file), '--skip-bad', '--nvme', 'all'], describe, convert],
  },
  {
    name: 'gateway trace',
    file: 'traffic.jsonl',
    good: lines(12, (i) => ({
      arrival_us: 70_000 - i * 1000,
      prompt_tokens: 40,
      output_tokens: i,
      block_tokens: 16,
      block_keys: ['00000000000000aa', `00000000000000${10 + i}`],
      tenant: i % 2 === 0 ? 'a' : '',
      slo_class: 'batch',
      slo_ttft_us: 1000,
      session: `s${i % 3}`,
      max_tokens: 20,
      outcome: i % 4 === 0 ? 'rejected' : 'completed',
    })),
    commands: [describe, convert],
  },
  {
    name: 'gateway log',
    file: 'gateway.log',
    good: gatewayLog,
    commands: [(file) => ['gateway', 'replay', file], (file) => ['gateway', 'shadows', file]],
  },
  {
    name: 'weka trace',
    file: 'weka.jsonl',
    good: lines(8, (i) => ({
      s: `s${i % 2}`,
      a: 0,
      t: i,
      in: 130,
      out: 9,
      think: 1.5,
      h: [
        [0, 1],
        [i + 1, 1],
      ],
    })),
    commands: [describe, convert],
  },
  {
    name: 'token ids',
    file: 'tokens.jsonl',
    good: lines(6, (i) => ({
      input_tok_ids: Array.from({ length: 40 }, (_, j) => j * i),
      output_tok_ids: [1, 2, 3],
      arrival_time_ns: i * 1_000_000,
    })),
    commands: [describe, convert],
  },
  {
    name: 'miniswe',
    file: 'mini.jsonl',
    good: lines(6, (i) => ({
      timestamp: i * 1e6,
      session_id: `s${i % 2}`,
      input: 'question',
      output: 'answer',
    })),
    commands: [describe, convert],
  },
  {
    name: 'azure',
    file: 'azure.csv',
    good: csv('TIMESTAMP,ContextTokens,GeneratedTokens', 8, (i) => [
      `2023-11-16 18:17:0${i}.9799600`,
      400 + i,
      44,
    ]),
    commands: [describe, convert],
  },
  {
    name: 'lengths',
    file: 'lengths.csv',
    good: csv('num_prefill_tokens,num_decode_tokens', 8, (i) => [100 + i, 20]),
    commands: [
      (file) => [...describe(file), '--rate', '3'],
      (file, out) => [...convert(file, out), '--rate', '3'],
    ],
  },
  {
    name: 'tracev2',
    file: 'pair.csv',
    good: csv(
      'request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,' +
        'input_tokens,output_tokens,arrival_time_us,status',
      8,
      (i) => [i, 'c', 't', 'batch', '', 0, 'g', 32, 'false', 200, 30, i * 1000, 'ok'],
    ),
    commands: [describe, convert],
  },
  ...['every-key.yaml', 'specs/mixed-slo.yaml', 'specs/multiturn-chat-demo.yaml'].map(spec),
  ...['specs/regression_workload_load_spikes.yaml', 'specs/prefix-churn.yaml'].map(spec),
  {
    name: 'spec with sessions and misbehaviour',
    file: 'spec.yaml',
    good: sessionSpec,
    commands: [
      (file) => [...describe(file), '--num-requests', '40'],
      (file) => ['workload', 'convert', file, '--to', 'spec'],
      (file) => ['simulate', file, '--model', 'qwen3-14b', '--num-requests', '12', '--horizon', '9000000'],
    ],
  },
  {
    name: 'deployment',
    file: 'deployment.yaml',
    good: deployment,
    commands: [
      (file) => ['simulate', '--deployment', file, '--num-requests', '12', '--horizon', '9000000'],
      (file) => ['simulate', '--deployment', file, '--horizon', '9000', '--set', 'pools[0].replicas=2'],
    ],
  },
  {
    name: 'coefficients',
    file: 'coefficients.json',
    good: shipped('data/latency/calibrated-h100.json'),
    commands: [predict('--coefficients')],
  },
  {
    name: 'hardware',
    file: 'gpu.json',
    good: shipped('data/hardware/h100.json'),
    commands: [
      predict('--gpu'),
      (file) => [...predict('--gpu')(file), '--backend', 'trained-physics'],
      (file) => [...predict('--gpu')(file), '--backend', 'roofline', '--no-floor'],
    ],
  },
  ...['llama-3.1-8b-instruct', 'llama-4-scout-17b-16e-instruct-fp8-dynamic'].map(
    (name): InputKind => ({
      name: `model ${name}`,
      file: 'model.json',
      good: shipped(`data/models/${name}.json`),
      commands: (['calibrated', 'trained-physics', 'roofline'] as const).map((backend) => (file: string) => [
        'latency',
        'predict',
        '--model',
        file,
        '--gpu',
        'H100',
        '--backend',
        backend,
      ]),
    }),
  ),
  {
    name: 'steps',
    file: 'steps.csv',
    good: csv(
      'experiment,model,tp,prefill_requests,prefill_tokens,decode_requests,context_tokens,measured_us',
      12,
      (i) => [`e${i % 2}`, 'qwen3-14b', 1, i % 3, 20 * (i % 3), 8 + i, 500, 9000 + 100 * i],
    ),
    commands: [
      (file, out) => ['latency', 'fit', '--steps', file, '--out', out],
      (file, out) => ['latency', 'fit', '--backend', 'linear', '--steps', file, '--out', out],
    ],
  },
  {
    name: 'runs',
    file: 'runs.csv',
    good: shipped('data/latency/h100-runs.csv'),
    commands: [(file, out) => ['latency', 'fit', '--backend', 'linear', '--runs', file, '--out', out]],
  },
  {
    name: 'requests',
    file: 'requests.csv',
    good: csv('arrival_us,prompt_tokens,output_tokens,first_token_us,last_token_us', 6, (i) => [
      i * 1e5,
      300 + i,
      5 + i,
      i * 1e5 + 4e4,
      i * 1e5 + 9e4,
    ]),
    commands: [
      (file, out) => [
        'latency',
        'fit',
        '--requests',
        file,
        '--model',
        'llama-3.1-8b-instruct',
        '--gpu',
        'RTX-PRO-6000',
        '--out',
        out,
      ],
    ],
  },
  {
    name: 'links',
    file: 'links.json',
    good: JSON.stringify({ schema: 'tierkv.links/1', device: 'x', links: { ...links, ddrToHbm: { sizes } } }),
    commands: [
      (file) => [
        ...replay('data/mooncake-conversation-excerpt.jsonl.gz'),
        '--requests',
        '3',
        '--links',
        file,
      ],
    ],
  },
  {
    name: 'decision log',
    file: 'run.log',
    good: recordedLog(),
    mend: withChecks,
    commands: [(file) => ['replay', '--driver', 'modeled', '--inputs', file]],
  },
];
