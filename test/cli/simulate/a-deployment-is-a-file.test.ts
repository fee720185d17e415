/** `--deployment FILE`: the same simulation as from options, whole examples, and one line for each mistake. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { endingOf } from '../../../src/cli/process.ts';
import { goodputTargets } from '../../../src/sim/build/classTargets.ts';
import { hasRun, type SweepPoint } from '../../../src/sim/build/point.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';
import { clusterMetrics } from '../../../src/sim/report/metricsOutput.ts';
import { Spread } from '../../../src/sim/report/tierMetrics.ts';
import { simulated } from '../../goldens/upstream/wholeCases.ts';
import { printed as printedAsIs } from './printed.ts';
import { pointsOf, runPoints } from './sweptPoints.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-deployment-'));
});
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

const examples = path.join(import.meta.dirname, '../../../examples/deployments');

const base = `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2, latency_model: calibrated}
pools:
  - name: chat
    replicas: 2
    engine: {total_kv_blocks: 400, max_num_seqs: 16, scheduler: sjf, kv_cpu_blocks: 800}
control:
  admission: {policy: token-bucket, capacity: 90000, refill_rate: 5000}
  routing: {policy: weighted, scorers: {queue-depth: 2, kv-utilization: 1}, ties: random}
  signals: {snapshot_interval_us: 20000}
  priority: {policy: slo-class}
seed: 5
workload: {preset: chatbot, rate: 10, num_requests: 150}
slo:
  ttft: {standard: 300ms}
`;

const asOptions = [
  '--model qwen3-14b --hardware H100 --tp 2 --latency-model calibrated --num-instances 2',
  '--total-kv-blocks 400 --max-num-seqs 16 --scheduler sjf --kv-cpu-blocks 800',
  '--admission-policy token-bucket --token-bucket-capacity 90000 --token-bucket-refill-rate 5000',
  '--routing-policy weighted --routing-scorers queue-depth:2,kv-utilization:1',
  '--snapshot-refresh-interval 20000 --seed 5 --workload chatbot --rate 10 --num-requests 150',
  '--slo-ttft standard=300ms',
].join(' ');

function write(text: string): string {
  const file = path.join(folder, 'deployment.yaml');
  fs.writeFileSync(file, text);
  return file;
}

const withFloor = (text: string): string => text.replace('calibrated}', 'calibrated, floor: true}');

/** What is printed, but for the names of pools, and a row a request. */
async function printed(...args: string[]): Promise<string> {
  const rows = path.join(folder, 'rows.csv');
  const text = await printedAsIs(...args, '--requests', rows);
  return text.replace(/^pool [\w-]+: /gm, '') + fs.readFileSync(rows, 'utf8');
}

it('is the same simulation as its options', async () => {
  const fromFile = await printed('--deployment', write(base));
  expect(fromFile).toBe(await printed(...asOptions.split(' ')));
  expect(fromFile).toContain(' of 150 requests completed in ');
  expect(await printed('--deployment', write(withFloor(base)))).toBe(
    await printed(...asOptions.split(' '), '--floor'),
  );
});

it('says filters of routing and kinds of concurrency as options do', async () => {
  const few = 'concurrency_kind: hybrid, max_concurrency: 4, fairness: program-aware, half_life_us: 9e6';
  const text = base
    .replace('policy: token-bucket, capacity: 90000, refill_rate: 5000', 'policy: concurrency, kind: hybrid')
    .replace(
      'ties: random',
      'ties: random, prefix_cache_affinity: true, concurrency_kind: hybrid, max_concurrency: 3',
    )
    .replace('seed: 5', `  gateway: {policy: banded, detector: concurrency, ${few}}\nseed: 5`);
  const filters = 'prefixCacheAffinity=true,concurrencyKind=hybrid,maxConcurrency=3';
  const options = asOptions
    .replace(/--token-bucket.* 5000/, '--admission-parameters kind=hybrid')
    .replace('token-bucket', 'concurrency')
    .replace('--snap', `--routing-parameters ${filters} --snap`);
  const gateway = '--flow-control --saturation-detector concurrency';
  const kind = '--concurrency-kind hybrid --max-concurrency 4 --fairness-policy program-aware';
  const fairness = '--gateway-parameters halfLifeUs=9e6';
  const fromFile = await printed('--deployment', write(text));
  expect(fromFile).toBe(await printed(...`${options} ${gateway} ${kind} ${fairness}`.split(' ')));
  expect(fromFile).not.toBe(await printed('--deployment', write(base)));
});

it('says how KV is handed off as options do', async () => {
  const pool = (role: string): string =>
    `  - {name: ${role}, role: ${role}, engine: {total_kv_blocks: 2000}}\n`;
  const text = `version: 1
models:
  - {name: qwen3-14b, hardware: H100}
pools:
${pool('prefill')}${pool('decode')}control:
  decider: {policy: always}
handoff: {bandwidth_gb_per_s: 2, granularity: block, pipelined: true}
seed: 5
workload: {preset: summarization, rate: 2, num_requests: 60}
`;
  const asText = (more: string): Promise<string> => {
    const pools = '--num-instances 2 --prefill-instances 1 --decode-instances 1 --pd-decider always';
    const rest = '--total-kv-blocks 2000 --seed 5 --workload summarization --rate 2 --num-requests 60';
    return printed(
      ...`--model qwen3-14b --hardware H100 ${pools} ${rest} --pd-transfer-bandwidth 2 ${more}`.split(' '),
    );
  };
  const fromFile = await printed('--deployment', write(text));
  expect(fromFile).toBe(await asText('--pd-transfer-granularity block --pd-transfer-pipelined'));
  expect(fromFile).toMatch(/KV Transfers: .* in \d+ transfers/);
  expect(fromFile).not.toBe(await asText('--pd-transfer-granularity block'));
  expect(await asText('--pd-transfer-granularity request')).toMatch(/KV Transfers: [\d.]+ \w+, mean/);
});

it('gives way to the command line in workload, seed and settings', async () => {
  const file = write(base);
  const more = ['--workload', 'summarization', '--rate', '4', '--num-requests', '40', '--seed', '9'];
  const said = await printed(
    '--deployment',
    file,
    ...more,
    '--set',
    'pools[0].replicas=1',
    '--set',
    'pools[0].engine.max_num_seqs=8',
  );
  const options = asOptions
    .replace('--num-instances 2', '--num-instances 1')
    .replace('--max-num-seqs 16', '--max-num-seqs 8')
    .replace(/--seed.*--num-requests 150/, more.join(' '));
  expect(said).toBe(await printed(...options.split(' ')));
});

const served = 'examples/deployments/%s serves every request, and has no idle or swamped instance';
it.each(fs.readdirSync(examples))(served, (name) => {
  const spread = new Spread();
  const args = ['--deployment', path.join(examples, name), '--num-requests', '250'];
  const { simulation, scaling, deployment, opened } = simulated(args, { observer: spread });
  const scaled = new Set(scaling.map(({ configId }) => configId));
  expect(spread.warnings(simulation.instances, scaled)).toEqual([]);
  const { table, instances } = simulation;
  const metrics = clusterMetrics(table, instances, goodputTargets(deployment, opened.spec));
  expect(metrics.injected_requests).toBeGreaterThan(100);
  expect(metrics.completed_requests).toBe(metrics.injected_requests);
});

it('can be swept over a field', async () => {
  const axes = ['pools[0].replicas=1,2', 'rate=5,20'];
  const points = pointsOf(axes, ['--deployment', write(base), '--num-requests', '60']);
  const results = (await runPoints(points, 2)).filter(hasRun);
  expect(results.map(({ values, gpus }) => [values['pools[0].replicas'], values.rate, gpus])).toEqual([
    ['1', '5', 2],
    ['1', '20', 2],
    ['2', '5', 4],
    ['2', '20', 4],
  ]);
  expect(results[3].e2eMeanMs).toBeLessThan(results[1].e2eMeanMs);
});

it('a tier of size 0 is left out, in a sweep over sizes', async () => {
  const tiered = base.replace(', kv_cpu_blocks: 800}', '}\n    tiers: {cpu_bytes_to_use: 1}');
  const args = ['--deployment', write(tiered), '--num-requests', '60'];
  const point = (cpu: number, disk: string): SweepPoint => ({
    values: { cpu: String(cpu), disk },
    read: () =>
      askedBy(
        readWords([
          ...args,
          ...['--set', `pools[0].tiers.cpu_bytes_to_use=${cpu}`],
          ...['--set', `pools[0].tiers.secondary_tiers=[${disk}]`],
        ]),
      ).deployment,
  });
  const disk = (bytes: number): string => `{type: fs, device_class: nvme_gen4, capacity_bytes: ${bytes}}`;
  const below = ['', disk(0), disk(4e9), `${disk(0)}, ${disk(4e9)}`];
  const good = [0, 2e9].flatMap((cpu) => below.map((each) => point(cpu, each)));
  const results = await runPoints([...good, point(1000, '')], 1);
  expect(results.slice(0, -1).filter(hasRun)).toHaveLength(good.length);
  expect(results.at(-1)).toMatchObject({
    error: { code: 'TKV_INPUT', field: 'pools[0].tiers.cpu_bytes_to_use' },
  });
});

/** Two pools of one model, the second as said. */
function twoPools(second: string): string {
  return `version: 1
models:
  - {name: qwen3-14b, hardware: H100, tp: 2}
pools:
  - {name: a, replicas: 1, engine: {total_kv_blocks: 400}}
  - {name: b, ${second}, engine: {total_kv_blocks: 400}}
workload: {preset: chatbot, rate: 10, num_requests: 150}
seed: 5
`;
}

interface ScaledMetrics {
  readonly injected_requests: number;
  readonly completed_requests: number;
  readonly tierkv: { readonly scaling?: readonly Record<string, number | string>[] };
}

describe('pools scale', () => {
  async function run(
    name: string,
    ...more: string[]
  ): Promise<{ text: string; metrics: ScaledMetrics; rows: Record<string, unknown>[] }> {
    const [file, decisions] = [path.join(folder, 'metrics.json'), path.join(folder, 'decisions.jsonl')];
    const text = await printed(
      '--deployment',
      name,
      ...more,
      '--metrics-path',
      file,
      '--decisions',
      decisions,
    );
    const lines = fs.readFileSync(decisions, 'utf8').trim().split('\n');
    return {
      text,
      metrics: JSON.parse(fs.readFileSync(file, 'utf8')) as ScaledMetrics,
      rows: lines.map((line) => JSON.parse(line) as Record<string, unknown>),
    };
  }

  it('each on its own, in summary, metrics and decisions', async () => {
    const { text, metrics, rows } = await run(
      path.join(examples, 'scaled-pools.yaml'),
      '--num-requests',
      '600',
      // as few replicas at first, and as hasty, that each pool has to scale
      ...['--set', 'pools[0].replicas.min=1', '--set', 'pools[0].autoscaling.down_window_us=20000000'],
      ...['--set', 'pools[1].replicas={min: 1, max: 6, initial: 2}'],
    );
    expect(metrics.completed_requests).toBe(600);
    const shown = /\nAutoscaling\n {2}prefill: hpa, 1 to 4 replicas, .*\n {2}decode: token-capacity, 1 to 6 /;
    expect(text).toMatch(shown);
    const [prefill, decode] = metrics.tierkv.scaling ?? [];
    expect([prefill.configId, decode.configId]).toEqual(['prefill', 'decode']);
    const scales = rows.filter(({ kind }) => kind === 'scale');
    for (const { configId, ups, downs, minReplicas, maxReplicas } of [prefill, decode]) {
      const own = scales.filter((row) => row.configId === configId);
      expect(own.length).toBe(Number(ups) + Number(downs));
      expect(own.length).toBeGreaterThan(0);
      for (const { newCount } of own) {
        expect(newCount).toBeGreaterThanOrEqual(Number(minReplicas));
        expect(newCount).toBeLessThanOrEqual(Number(maxReplicas));
      }
    }
    const came = scales.filter(({ readyUs }) => Number(readyUs) > 0);
    expect(came.length).toBeGreaterThan(0);
    for (const { configId, timeUs, readyUs, provisioningDelayUs, warmupEndUs } of came) {
      expect(Number(provisioningDelayUs)).toBeGreaterThan(configId === 'prefill' ? 4e6 : 8e6);
      expect(Number(readyUs)).toBeGreaterThanOrEqual(Number(timeUs) + Number(provisioningDelayUs));
      expect(Number(warmupEndUs)).toBe(Number(readyUs) + (configId === 'prefill' ? 0 : 15e6));
    }
    expect(rows.some(({ kind, phase }) => kind === 'replica' && phase === 'ready')).toBe(true);
  });

  it('one autoscaling for all is used by each pool with room and without its own', async () => {
    const policy = 'autoscaling: {policy: {policy: hpa, target: 1}, poll_interval_us: 100000}';
    const file = write(`${twoPools('replicas: {min: 1, max: 3}')}${policy}\n`);
    const { metrics } = await run(file);
    expect(metrics.tierkv.scaling).toMatchObject([{ configId: 'b', policy: 'hpa', maxReplicas: 3 }]);
    const own = write(twoPools(`replicas: {min: 1, max: 3}, ${policy}`));
    expect((await run(own)).metrics.tierkv.scaling).toEqual(metrics.tierkv.scaling);
    const { metrics: fixed, text } = await run(write(twoPools('replicas: 2')));
    expect(fixed.tierkv.scaling).toBeUndefined();
    expect(text).not.toContain('Autoscaling');
  });
});

describe('a mistake is one line with file, line and key', () => {
  const replaced = (what: string, by: string): string => base.replace(what, by);
  it.each([
    [
      replaced('replicas: 2', 'replicsa: 2'),
      /:6: pools\[0\].replicsa is not a key here. Did you mean "replicas"/,
    ],
    [
      replaced('max_num_seqs: 16', 'max_num_seqs: 0'),
      /:7: pools\[0\].engine.max_num_seqs is 0. Set it to an integer/,
    ],
    [
      replaced('max_num_seqs', 'max_num_seq'),
      /engine.max_num_seq is not a key here. Did you mean "max_num_seqs"/,
    ],
    [replaced('scheduler: sjf', 'scheduler: sfj'), /engine.scheduler is "sfj".*'sjf'/],
    [replaced('name: qwen3-14b', 'name: qwen3-41b'), /:3: models\[0\].name: unknown model .*qwen3-14b/],
    [replaced('H100', 'H1000'), /H100/],
    [replaced('tp: 2', 'tp: 3'), /:3: models\[0\].tp /],
    [
      replaced('token-bucket', 'token-buckt'),
      /:9: control.admission.policy is not known.*Did you mean token-bucket/,
    ],
    [replaced('refill_rate', 'refil_rate'), /:9: control.admission.refil_rate is not known.*refillRate/],
    [replaced('queue-depth: 2', 'queue-dept: 2'), /:10: control.routing.scorers .*queue-depth/],
    [replaced('replicas: 2', 'role: prefill'), /pools has prefill pool "chat" and no decode pool/],
    [replaced('replicas: 2', 'replicas: {min: 1, max: 4}'), /pools gives "chat" room to scale.*autoscaling/],
    [
      twoPools('replicas: {min: 1, max: 3}, autoscaling: {policy: {policy: hpaa}}'),
      /:6: pools\[1\].autoscaling.policy.policy is not known.*hpa/,
    ],
    [
      twoPools('replicas: {min: 1, max: 3}, autoscaling: {policy: {policy: hpa}, pol_interval_us: 5}'),
      /:6: pools\[1\].autoscaling.pol_interval_us is not a key here. Did you mean "poll_interval_us"/,
    ],
    [
      twoPools('replicas: {min: 1, max: 3}, autoscaling: {poll_interval_us: 5}'),
      /:6: pools\[1\].autoscaling.policy is missing/,
    ],
    [
      twoPools('replicas: 2, autoscaling: {policy: {policy: hpa}}'),
      /:6: pools\[1\].autoscaling has no room, since replicas are 2. Write replicas: \{min/,
    ],
    [
      twoPools('replicas: {min: 1, max: 3}, autoscaling: {mode: event, policy: {policy: hpa}}'),
      /:6: pools\[1\].autoscaling.triggers hold nothing that can fire.* or take mode periodic/,
    ],
    [
      twoPools('replicas: {min: 1, max: 3}, autoscaling: {mode: event, triggers: {}, policy: {policy: hpa}}'),
      /pools\[1\].autoscaling.triggers hold nothing that can fire/,
    ],
    [
      twoPools('replicas: {min: 1, max: 3}'),
      /pools gives "b" room to scale.*Add autoscaling to it or for all/,
    ],
    [
      `${twoPools('replicas: 2')}autoscaling: {policy: {policy: hpa}}\n`,
      /autoscaling is of no pool: .*Write replicas: \{min: 1, max: 4\} in a pool/,
    ],
    [
      `${twoPools('replicas: {min: 1, max: 3}, autoscaling: {policy: {policy: hpa}}')}autoscaling: {policy: {policy: kpa}}\n`,
      /autoscaling is of no pool/,
    ],
    [
      `${twoPools('replicas: {min: 1, max: 3}')}autoscaling: {policy: {policy: hpa}, dran: {mode: wait}}\n`,
      /autoscaling.dran is not a key here. Did you mean "drain"/,
    ],
    [replaced('version: 1', 'version: 2'), /:1: version is "2"/],
    [replaced('preset: chatbot', 'preset: chatbott'), /chatbott.*chatbot/],
    [
      replaced('workload: {preset: chatbot,', 'workload: {preset: chatbot, file: x.yaml,'),
      /workload names 2 of file/,
    ],
    [`${base}autoscaling: {policy: {policy: hpaa}}\n`, /autoscaling.policy.policy is not known.*hpa/],
    [
      `${base}autoscaling: {policy: {policy: hpa, targt: 3}}\n`,
      /autoscaling.policy.targt is not known.*target/,
    ],
    ['models: []\nversion: 1\n', /models is empty/],
    [replaced('total_kv_blocks: 400', 'total_kv_blocks: 0'), /engine.total_kv_blocks is 0/],
    [replaced('replicas: 2', 'replicas: 0'), /pools\[0\].replicas is 0/],
    [replaced('replicas: 2', 'replicas: "2"'), /pools\[0\].replicas is the text "2"\. Set it to a finite/],
    [replaced('replicas: 2', '<<: {replicas: 2}'), /:6: mappings are not merged \(<<\)\. Write the keys out/],
    [replaced('rate: 10', 'rate: -4'), /:14: workload.rate is -4\. Set it to requests per second above 0/],
    [replaced('rate: 10', 'rate: .inf'), /:14: workload.rate is Infinity, not a number/],
    [replaced('num_requests: 150', 'num_requests: 1.5'), /:14: workload.num_requests is 1\.5\. Set it to/],
    [
      `${base}handoff: {granularity: blok}\n`,
      /handoff.granularity is "blok", which does not exist. Did you mean 'block'/,
    ],
    [`${base}handoff: {pipelined: true}\n`, /handoff.pipelined has nothing to send .*chunk, block or stream/],
    [`${base}handoff: {pipelined: 1}\n`, /handoff.pipelined is 1. Write true or false/],
    [replaced('ttft: {', 'tftf: {'), /slo.tftf is not a key here. Did you mean "ttft"/],
  ])('%#', async (text, says) => {
    await expectMistake(['--deployment', write(text)], says);
  });

  it.each([
    ['--deployment FILE --num-instances 4', /--num-instances is given beside --deployment/],
    ['--deployment FILE --model qwen3-14b', /--model is given beside --deployment/],
    ['--deployment FILE --set pools[3].replicas=2', /--set is "pools\[3\].replicas=2".*nowhere/],
    ['--deployment FILE --set pools', /--set is "pools". Write field=value/],
    ['--deployment FILE --set pools[0].replicsa=2', /pools\[0\].replicsa is not a key here/],
    ['--set pools[0].replicas=2 --model qwen3-14b', /--set has no --deployment/],
    ['--deployment missing.yaml', /missing.yaml does not exist/],
    ['--rate 5', /--model is missing/],
  ])('%s', async (args, says) => {
    const file = write(base);
    await expectMistake(
      args.split(' ').map((word) => (word === 'FILE' ? file : word)),
      says,
    );
  });
});

async function expectMistake(args: readonly string[], says: RegExp): Promise<void> {
  let ending: ReturnType<typeof endingOf> | undefined;
  try {
    await printed(...args);
  } catch (error) {
    ending = endingOf(error, 'tierkv simulate');
  }
  expect(ending?.text).toMatch(says);
  expect(ending?.text.split('\n')).toHaveLength(1);
  expect(ending?.exitCode).toBe(2);
}
