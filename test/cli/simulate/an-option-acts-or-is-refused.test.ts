/**
 * Each option of `tierkv simulate`, given alone in a plain run: the run prints something else, writes a file,
 * or the option is refused by its name. Nothing that is given is passed over in silence.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TierKVError } from '../../../src/runtime/index.ts';
import { openSimulation } from '../../../src/sim/build/workloadSettings.ts';
import { accepted, outputRows, refused } from '../../../src/sim/description/knobs/beside.ts';
import { flagOf, knobs, negationOf, paths } from '../../../src/sim/description/knobs.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';
import { requestsOf } from '../../../src/sim/workload/request.ts';
import { printed } from './printed.ts';

let folder: string;
let plain: string;
const at = (name: string): string => path.join(folder, name);
const base = ['--model', 'qwen3-14b', '--rate', '40', '--num-requests', '30'];
beforeAll(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-idle-'));
  fs.writeFileSync(at('bundle.yaml'), 'scheduler: sjf\n');
  plain = await printed(...base);
});
afterAll(() => fs.rmSync(folder, { recursive: true }));

/** A value for each option that is not its default. A new option needs one here. */
const values: Readonly<Record<string, readonly string[]>> = {
  '--gpu': ['A100-SXM'],
  '--tp': ['2'],
  '--dp': ['2'],
  '--latency-model': ['roofline'],
  '--coefficients': ['data/latency/trained-physics.json'],
  '--alpha-coeffs': ['1,2,3'],
  '--beta-coeffs': ['1,1,1,1,1,1,1'],
  '--moe-comm-backend': ['pplx'],
  '--max-model-len': ['300'],
  '--model-config-folder': ['none'],
  '--hardware-config': ['none.json'],
  '--hbm': ['200'],
  '--ddr': ['1GiB'],
  '--nvme': ['0.5GB'],
  '--ddr-class': ['s3'],
  '--ddr-gbps': ['0.001'],
  '--nvme-class': ['sata_ssd'],
  '--nvme-gbps': ['0.001'],
  '--block-tokens': ['1024'],
  '--kv-cache-dtype': ['fp8'],
  '--quantization': ['fp8'],
  '--disable-hybrid-kv-cache-manager': [],
  '--assume-plain-attention': [],
  '--num-speculative-tokens': ['3'],
  '--speculative-acceptance': ['0.7'],
  '--speculative-draft-model': ['llama-3.1-8b-instruct'],
  '--speculative-draft-us': ['500'],
  '--expert-imbalance': ['1.5'],
  '--max-loras': ['900'],
  '--max-lora-rank': ['64'],
  '--lora-load-us': ['900'],
  '--gpu-memory-utilization': ['0.6'],
  '--max-num-seqs': ['2'],
  '--max-num-batched-tokens': ['100'],
  '--long-prefill-token-threshold': ['16'],
  '--kv-cpu-blocks': ['5000'],
  '--kv-offload': ['eager'],
  '--kv-offload-threshold': ['0.5'],
  '--kv-transfer-bandwidth': ['5'],
  '--kv-transfer-base-latency': ['5'],
  '--kv-offload-config': ['none.yaml'],
  '--shared-tier': ['none.yaml'],
  '--kv-load': ['always'],
  '--eviction': ['fifo'],
  '--scheduler': ['sjf'],
  '--preemption-policy': ['priority'],
  '--preemption-mode': ['restart'],
  '--num-instances': ['2'],
  '--policy-config': ['BUNDLE'],
  '--admission-policy': ['reject-all'],
  '--admission-parameters': ['kind=tokens'],
  '--admission-latency': ['7000'],
  '--token-bucket-capacity': ['5'],
  '--token-bucket-refill-rate': ['5'],
  '--routing-latency': ['7000'],
  '--routing-policy': ['weighted'],
  '--routing-scorers': ['queue-depth:1'],
  '--routing-parameters': ['maxInFlight=5'],
  '--snapshot-refresh-interval': ['1'],
  '--cache-signal-delay': ['1'],
  '--shadow-kv': ['approximate'],
  '--model-autoscaler-interval-us': ['1000'],
  '--counterfactual-k': ['2'],
  '--flow-control': [],
  '--saturation-detector': ['utilization'],
  '--queue-depth-threshold': ['2'],
  '--kv-cache-util-threshold': ['0.2'],
  '--max-concurrency': ['2'],
  '--concurrency-kind': ['tokens'],
  '--max-token-concurrency': ['200'],
  '--dispatch-order': ['priority'],
  '--slo-targets': ['critical=10'],
  '--fairness-policy': ['round-robin'],
  '--gateway-parameters': ['serviceWeight=0.5'],
  '--max-gateway-queue-depth': ['1'],
  '--per-band-capacity': ['1'],
  '--usage-limit-threshold': ['0.5'],
  '--request-ttl': ['10'],
  '--dispatch-tick-interval': ['7'],
  '--queue-shedding': [],
  '--prefill-instances': ['1'],
  '--decode-instances': ['1'],
  '--prefill-decode-instances': ['1'],
  '--pd-decider': ['always'],
  '--pd-prefix-threshold': ['5'],
  '--prefill-routing-scorers': ['queue-depth:1'],
  '--decode-routing-scorers': ['queue-depth:1'],
  '--pd-transfer-bandwidth': ['5'],
  '--pd-transfer-base-latency': ['5'],
  '--pd-transfer-granularity': ['block'],
  '--pd-transfer-pipelined': [],
  '--pd-transfer-missing': [],
  '--workload': ['chatbot'],
  '--concurrency': ['2'],
  '--think-time-ms': ['500'],
  '--prefix-tokens': ['64'],
  '--length-range': ['0.8'],
  '--prompt-tokens': ['300'],
  '--prompt-tokens-stdev': ['100'],
  '--prompt-tokens-min': ['200'],
  '--prompt-tokens-max': ['600'],
  '--output-tokens': ['300'],
  '--output-tokens-stdev': ['100'],
  '--output-tokens-min': ['200'],
  '--output-tokens-max': ['600'],
  '--workload-spec': ['none.yaml'],
  '--trace-header': ['none.yaml'],
  '--trace-data': ['none.csv'],
  '--columns': ['input=a,output=b'],
  '--drop-empty': [],
  '--sort': [],
  '--seed': ['7'],
  '--jitter-seed': ['7'],
  '--horizon': ['100000'],
  '--timeout': ['1'],
  '--profile': ['step:from=1,to=10,at=1,duration=2'],
  '--session-mode': ['closed-loop'],
  '--speedup': ['2'],
  '--as-upstream': [],
  '--slo-ttft': ['critical=1ms'],
  '--slo-itl': ['critical=1ms'],
  '--slo-e2e': ['critical=1ms'],
  '--chrome-trace-events': ['5'],
  '--trace-level': ['decisions'],
  '--summarize-trace': [],
  '--deployment': ['none.yaml'],
  '--set': ['a=1'],
};
/** Why an option alone shows nothing in what is printed. */
const elsewhere: Readonly<Record<string, string>> = {
  '--model': 'is in each run',
  '--rate': 'is in each run',
  '--num-requests': 'is in each run',
  '--simulation-seed': 'is in the provenance of each result, and in draws of policies',
  '--log': 'is accepted for upstream, and says so',
  '--floor': 'is on, unless --as-upstream turns it off',
  '--no-floor': 'acts under models of time that go below it',
  '--eviction': 'acts once a tier is full',
  '--preemption-policy': 'acts once a batch gives way',
  '--preemption-mode': 'acts once a batch gives way',
  '--kv-cpu-blocks': 'acts once GPU memory is full',
  '--routing-policy': 'acts with more instances',
  '--block-tokens': 'acts once prompts share blocks or memory is full',
  '--gpu-memory-utilization': 'acts once GPU memory is full',
  '--scheduler': 'acts once requests wait',
  '--max-loras': 'acts once GPU memory is full, or where requests have adapters',
  '--policy-config': 'names a scheduler here',
  '--coefficients': 'is the shipped file by its path',
};
const files = [
  '--json',
  '--report',
  '--metrics-path',
  '--requests',
  '--trace-output',
  '--results-path',
  '--decisions',
  '--chrome-trace',
  '--plot',
];

describe('given alone', () => {
  const options = [
    ...paths.flatMap((path) => [
      flagOf(path),
      ...(knobs[path].negated === undefined ? [] : [negationOf(flagOf(path))]),
    ]),
    ...outputRows.map(([flags]) => flags.split(' ')[0]),
  ];
  it.each(options)('%s', async (option) => {
    if (files.includes(option)) {
      await printed(...base, option, at(`out${files.indexOf(option)}`));
      expect(fs.readdirSync(folder).some((name) => name.startsWith(`out${files.indexOf(option)}`))).toBe(
        true,
      );
      return;
    }
    const value = values[option];
    expect([option, value !== undefined || option in elsewhere]).toEqual([option, true]);
    if (value === undefined) return;
    let out: string;
    try {
      out = await printed(
        ...base,
        option,
        ...value.map((text) => (text === 'BUNDLE' ? at('bundle.yaml') : text)),
      );
    } catch (error) {
      expect(error).toBeInstanceOf(TierKVError);
      expect((error as Error).message).toMatch(
        new RegExp(`${option}|${value[0] ?? option}|--deployment|--num-instances|--concurrency|-instances`),
      );
      return;
    }
    if (!(option in elsewhere)) expect([option, out === plain]).toEqual([option, false]);
  });
});

const failure = async (...args: string[]): Promise<string> =>
  printed('--model', 'qwen3-14b', '--num-requests', '5', ...args).then(
    () => 'it ran',
    (error: Error) => (error instanceof TierKVError ? error.message : `raw ${error.message}`),
  );

describe('beside what it needs', () => {
  const flow = '--flow-control --saturation-detector';
  it.each([
    ['--flow-control', /^--flow-control holds requests .* Add --saturation-detector/],
    [`${flow} concurrency --queue-depth-threshold 2`, /^--queue-depth-threshold is of the utilization/],
    [`${flow} utilization --max-concurrency 2`, /^--max-concurrency is of the concurrency detector/],
    [`${flow} concurrency --max-token-concurrency 9`, /^--max-token-concurrency counts tokens/],
    [`${flow} utilization --queue-shedding`, /^--queue-shedding is for a full queue/],
    [`${flow} utilization --slo-targets critical=5`, /^--slo-targets is for --dispatch-order slo-deadline/],
    [
      '--num-instances 2 --routing-policy least-loaded --routing-scorers queue-depth:1',
      /^--routing-scorers is of/,
    ],
    ['--num-instances 2 --prefill-instances 1 --decode-instances 1 --pd-transfer-bandwidth 5', /hand-offs/],
    [
      '--latency-model roofline --model mixtral-8x7b-v0.1 --dp 2',
      /^--dp is 2, and the latency model roofline/,
    ],
    ['--moe-comm-backend pplx', /^--moe-comm-backend is pplx, which is for experts/],
    ['--slo-ttft critcal=100ms', /^--slo-ttft names the class "critcal".*Did you mean "critical"/],
    ['--total-kv-blocks 1', /^none of 5 requests fits: an instance has 1 blocks of 16 tokens/],
    ['test/sim/workload/fixtures/traces/chatbot-r5.csv.gz --timeout 5', /^--timeout changes a specification/],
  ])('%s', async (args, says) => {
    expect(await failure(...args.split(' '))).toMatch(says);
  });

  it.each([
    [
      'priority: {policy: slo-based}',
      /bundle\.yaml:1: priority\.policy is "slo-based", which changes nothing/,
    ],
    ['routing: {policy: least-loaded, scorers: [{name: queue-depth}]}', /^routing\.scorers of .* weighted/],
    ['admission: {policy: tier-shed, token_bucket_capacity: 5}', /^admission\.token_bucket_capacity of/],
    ['admission: {slo_priorities: {critcal: 5}}', /^admission\.slo_priorities names the class "critcal"/],
  ])('a bundle with %s', async (text, says) => {
    fs.writeFileSync(at('bundle.yaml'), `${text}\n`);
    expect(await failure('--policy-config', at('bundle.yaml'))).toMatch(says);
  });

  it('each option of upstream that is not here is refused with a remedy and stands in the page', async () => {
    const page = fs.readFileSync('docs/reference/blis-differences.md', 'utf8');
    for (const [flags] of [...accepted, ...refused]) {
      const [flag, value] = flags.split(' ');
      expect(page).toContain(`\`${flag}\``);
      const said = await failure(flag, ...(value === undefined ? [] : ['1']));
      if (flag === '--lazy-generation') expect(said).toBe('it ran');
      else expect(said).toMatch(new RegExp(`^${flag} is upstream's and .*\\. \\S.*\\.$`));
    }
  });
});

it('nominal lengths with a range are drawn evenly below the nominal ones', async () => {
  const even = ['--prompt-tokens', '1000', '--output-tokens', '200', '--length-range', '0.8'];
  const words = [
    '--model',
    'qwen3-14b',
    '--workload',
    'distribution',
    '--rate',
    '5',
    '--num-requests',
    '600',
    ...even,
  ];
  const { workload } = openSimulation(askedBy(readWords(words)).deployment);
  const rows = [...requestsOf(workload.stream)];
  for (const [name, most] of [
    ['inputTokens', 1000],
    ['outputTokens', 200],
  ] as const) {
    const lengths = rows.map((row) => row[name]);
    expect(Math.min(...lengths)).toBeGreaterThanOrEqual(0.8 * most);
    expect(Math.max(...lengths)).toBeLessThanOrEqual(most);
    // an even draw has its mean in the middle, and a tenth of it in the lowest tenth
    expect(lengths.reduce((sum, one) => sum + one, 0) / lengths.length / most).toBeCloseTo(0.9, 1);
    expect(lengths.filter((one) => one < 0.82 * most).length / lengths.length).toBeCloseTo(0.1, 1);
  }
  await expect(printed(...base, ...even, '--prompt-tokens-stdev', '9')).rejects.toThrow(
    /--prompt-tokens-stdev excludes --length-range/,
  );
});

it('short answers first: requests that wait are served sooner on the mean than by their prompts', async () => {
  const mean = async (scheduler: string): Promise<number> => {
    const file = at(`${scheduler}.json`);
    const lengths = ['--prompt-tokens-stdev', '0', '--output-tokens', '200', '--output-tokens-stdev', '150'];
    await printed(
      ...base,
      '--max-num-seqs',
      '1',
      ...lengths,
      '--scheduler',
      scheduler,
      '--metrics-path',
      file,
    );
    return JSON.parse(fs.readFileSync(file, 'utf8')).e2e_mean_ms;
  };
  expect(await mean('sjf-output')).toBeLessThan(0.9 * (await mean('sjf')));
});

it('blocks of host memory go down to a disk by the policy that was asked for', async () => {
  const onDisk = async (...policy: string[]): Promise<number> => {
    const file = at('disk.json');
    // GPU memory is small and host memory is not: nothing goes further for want of room
    const tiers = ['--hbm', '400', '--ddr', '8000', '--nvme', '8000', '--kv-load', 'always'];
    await printed(...base, ...tiers, ...policy, '--json', file);
    const { tiers: found } = JSON.parse(fs.readFileSync(file, 'utf8')).result.transfers;
    return found.find(({ tier }: { tier: string }) => tier === 'nvme').writtenBytes;
  };
  expect(await onDisk('--kv-offload', 'lazy')).toBe(0);
  expect(await onDisk('--kv-offload', 'threshold', '--kv-offload-threshold', '1')).toBe(0);
  expect(await onDisk('--kv-offload', 'eager')).toBeGreaterThan(0);
});

it('blocks go down by the policy that was asked for', async () => {
  const sent = async (...policy: string[]): Promise<number> => {
    const file = at('sent.json');
    await printed(...base, '--ddr', '32GiB', '--kv-load', 'always', ...policy, '--json', file);
    return JSON.parse(fs.readFileSync(file, 'utf8')).result.transfers.sent;
  };
  // there is room for all, so only a policy that does not wait for need sends any
  expect(await sent()).toBe(0);
  expect(await sent('--kv-offload', 'lazy')).toBe(0);
  const eager = await sent('--kv-offload', 'eager');
  expect(eager).toBeGreaterThan(0);
  expect(await sent('--kv-offload', 'threshold')).toBe(0);
  expect(await sent('--kv-offload', 'threshold', '--kv-offload-threshold', '0')).toBeGreaterThan(0);
  for (const policy of ['lazy', 'eager']) {
    const both = ['--kv-offload', policy, '--kv-offload-threshold', '0.5'];
    await expect(sent(...both)).rejects.toThrow(/--kv-offload-threshold is of the policy threshold/);
  }
});
