/** The evaluator on a small plan: the same for any number of threads, every failure in its own evaluation. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { CaseCache } from '../../../src/policy/evaluate/caseCache.ts';
import { SimulationEvaluator } from '../../../src/policy/evaluate/evaluator.ts';
import { openPolicy } from '../../../src/policy/evaluate/openPolicy.ts';
import { loadPlan, refuseIdleScaling } from '../../../src/policy/evaluate/plans.ts';
import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { baseline, preset } from '../../../src/policy/evolve/bundle/presets.ts';
import type { Evaluation, SuiteCase } from '../../../src/policy/evolve/fitness/evaluation.ts';
import { FAILED_SCORE } from '../../../src/policy/evolve/fitness/objectives.ts';
import { nothingSaid } from '../../../src/sim/description/settings.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-evaluate-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

const workload = path.join(import.meta.dirname, '..', '..', '..', 'data', 'suites', 'shared-prefixes.yaml');
const planFile = path.join(folder, 'small.json');
fs.writeFileSync(
  planFile,
  JSON.stringify({
    workloads: [workload],
    latencyModels: ['roofline'],
    args: [
      '--model',
      'qwen/qwen2.5-7b-instruct',
      '--hardware',
      'H100',
      '--tp',
      '1',
      '--num-instances',
      '3',
      '--num-requests',
      '60',
    ],
    suites: { train: { seeds: [1, 2], perturbation: 0.1 } },
  }),
);

const star = (source: string): PolicyBundle => ({ routing: { type: 'code', language: 'starlark', source } });
const broken = star(
  'def score(request, cluster, instances):\n    return [1 // (i.number - 1) for i in instances]',
);
const endless = star(
  'def score(request, cluster, instances):\n    return [[x for x in range(1 << 40)] for i in instances]',
);
const hesitating = star(
  'def score(request, cluster, instances):\n    return [len([x for x in range(100000)]) for i in instances]',
);
const unreadable = { routing: { type: 'parameterized', template: 'unknown', parameters: {} } } as const;

async function evaluate(
  bundles: readonly PolicyBundle[],
  limits: { workers?: number; wallMs?: number; cacheFolder?: string } = {},
): Promise<readonly Evaluation[]> {
  const { workers = 1, wallMs = 100_000, cacheFolder } = limits;
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(planFile),
    limits: { workers, wallMs, heapMiB: 1024 },
    ...(cacheFolder === undefined ? {} : { cacheFolder }),
  });
  try {
    return await evaluator.evaluate(bundles, 'train');
  } finally {
    await evaluator.close();
  }
}

test('a program for priority comes with the scheduler that reads its ranks, others with none', () => {
  const file = path.join(folder, 'urgent.star');
  fs.writeFileSync(file, 'def prioritise(request, cluster):\n    return request.classPriority');
  const scheduler = (slot: string): unknown => openPolicy(file, slot).instanceScheduler;
  expect(scheduler('priority')).toEqual({
    type: 'parameterized',
    template: 'priority-fcfs',
    parameters: {},
  });
  expect(scheduler('routing')).toBeUndefined();
});

describe('an evaluation', () => {
  test('is the same for any number of threads, and from the cache', async () => {
    const bundles = [preset('routing/lor'), broken, preset('routing/llq'), unreadable, preset('routing/lor')];
    const cacheFolder = path.join(folder, 'cache');
    const one = await evaluate(bundles, { cacheFolder });
    expect(await evaluate(bundles, { workers: 3 })).toEqual(one);
    const kept = fs.readdirSync(cacheFolder).length;
    expect(kept).toBe(6);
    expect(await evaluate(bundles, { cacheFolder })).toEqual(one);
    expect(fs.readdirSync(cacheFolder).length).toBe(kept);
    expect(one[4]).toEqual(one[0]);
  });

  test('is 0 for the baseline, and has all names for what failed', async () => {
    const [same, lor, failed, none] = await evaluate([baseline, preset('routing/lor'), endless, unreadable]);
    expect(same.score).toBe(0);
    expect(same.objectives).toEqual([0, 0, 0]);
    expect(same.cases?.map(({ id }) => id)).toEqual([
      'shared-prefixes/roofline/1',
      'shared-prefixes/roofline/2',
    ]);
    expect(lor.score).not.toBe(0);
    expect(failed.error?.kind).toBe('memory_limit');
    expect(failed.error?.message).toMatch(/routing, line 2, request request_0/);
    expect(failed.error?.line).toBe(2);
    expect(none.error).toEqual({
      kind: 'contract',
      message: expect.stringMatching(/^routing\.template is not known/),
    });
    for (const { score, metrics } of [failed, none]) {
      expect(score).toBe(FAILED_SCORE);
      expect(Object.keys(metrics).sort()).toEqual(Object.keys(same.metrics).sort());
    }
  });
});

test('a run that takes too long is ended alone, and nothing of it is kept', async () => {
  const cacheFolder = path.join(folder, 'late');
  // far longer than a busy machine keeps a timer waiting
  const long = path.join(folder, 'long.json');
  fs.writeFileSync(long, fs.readFileSync(planFile, 'utf8').replace('"60"', '"100000"'));
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(long),
    limits: { workers: 1, wallMs: 1, heapMiB: 1024 },
    cacheFolder,
  });
  await expect(evaluator.evaluate([preset('routing/lor')], 'train')).rejects.toThrow(
    /^baseline: the run took longer than 1 ms/,
  );
  await evaluator.close();
  expect(fs.readdirSync(cacheFolder)).toEqual([]);
  // with the baseline known, a candidate that is too slow has no score, and the next one has its own
  const known = path.join(folder, 'known');
  const [good] = await evaluate([preset('routing/lor')], { cacheFolder: known });
  const late = new SimulationEvaluator({
    plan: loadPlan(planFile),
    limits: { workers: 1, wallMs: 1, heapMiB: 1024 },
    cacheFolder: known,
  });
  const [slow, kept] = await late.evaluate([hesitating, preset('routing/lor')], 'train');
  await late.close();
  expect(slow.error?.kind).toBe('infrastructure_timeout');
  expect(kept).toEqual(good);
});

test('a folder that takes no more results is told once, and costs no evaluation', async () => {
  const cacheFolder = path.join(folder, 'gone');
  const said: string[] = [];
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(planFile),
    limits: { workers: 1, wallMs: 100_000, heapMiB: 1024 },
    cacheFolder,
    say: (line) => said.push(line),
  });
  // a file in its place refuses also the administrator
  fs.rmdirSync(cacheFolder);
  fs.writeFileSync(cacheFolder, '');
  const [evaluation] = await evaluator.evaluate([preset('routing/lor')], 'train');
  await evaluator.close();
  expect(evaluation.error).toBe(undefined);
  expect(evaluation.cases?.length).toBe(2);
  expect(said).toEqual([
    `${cacheFolder} takes no more results (ENOTDIR); from here on they are kept in memory alone`,
  ]);
});

test.runIf(fs.existsSync('/dev/full'))('what a full disk has of a result is removed', () => {
  const full = path.join(folder, 'full');
  const said: string[] = [];
  const cache = new CaseCache(full, undefined, (line) => said.push(line));
  fs.symlinkSync('/dev/full', path.join(full, `a.json.${process.pid}`));
  cache.set('a', { ttft_mean_ms: 1 });
  cache.set('b', { ttft_mean_ms: 2 });
  expect(said).toEqual([expect.stringContaining('(ENOSPC)')]);
  expect(fs.readdirSync(full)).toEqual([]);
  expect([cache.get('a'), cache.get('b')]).toEqual([{ ttft_mean_ms: 1 }, { ttft_mean_ms: 2 }]);
});

test('an evaluation that is called off ends with the reason', async () => {
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(planFile),
    limits: { workers: 1, wallMs: 100_000, heapMiB: 1024 },
  });
  const stop = new AbortController();
  const asked = evaluator.evaluate([preset('routing/lor')], 'train', stop.signal);
  stop.abort(new Error('enough'));
  await expect(asked).rejects.toThrow('enough');
  await evaluator.close();
});

test('a bundle that scales has no score where the plan scales no instances', async () => {
  const [scaling, plain] = await evaluate([preset('autoScale/hpa'), preset('routing/lor')]);
  expect(scaling).toMatchObject({
    score: FAILED_SCORE,
    error: {
      kind: 'contract',
      message:
        'autoScale decides nothing where the plan scales no instances. ' +
        'Leave the slot out, or take the plan scaling.',
    },
  });
  expect(plain.error).toBeUndefined();
  const bundle = preset('autoScale/hpa');
  expect(() => refuseIdleScaling(bundle, loadPlan('scaling'))).not.toThrow();
  for (const name of ['routing', 'admission']) {
    expect(() => refuseIdleScaling(bundle, loadPlan(name))).toThrow(/^autoScale decides nothing/);
    expect(() => refuseIdleScaling(preset('autoScale/none'), loadPlan(name))).not.toThrow();
  }
});

test('results are kept by what is in files, and a damaged file is computed anew', () => {
  const cache = new CaseCache(path.join(folder, 'by-content'));
  const file = path.join(folder, 'hardware.json');
  const each = (arg: string): SuiteCase => ({
    id: 'a',
    deployment: { ...nothingSaid, values: { hardwareConfig: arg } },
    seed: 1,
    perturbation: 0,
  });
  const keyWith = (content: string): string => {
    fs.writeFileSync(file, content);
    return new CaseCache().key(baseline, each(file));
  };
  const [one, other] = [keyWith('{"a":1}'), keyWith('{"a":2}')];
  expect(one).not.toBe(other);
  expect(keyWith('{"a":1}')).toBe(one);
  fs.copyFileSync(file, `${file}.copy`);
  expect(new CaseCache().key(baseline, each(`${file}.copy`))).toBe(one);
  for (const wrong of ['null', '{}', '{"a":"1"}', '[', '3']) {
    fs.writeFileSync(path.join(folder, 'by-content', `${one}.json`), wrong);
    expect(cache.get(one)).toBe(undefined);
  }
  fs.writeFileSync(path.join(folder, 'by-content', `${one}.json`), '{"latency_ms":1}');
  expect(cache.get(one)).toEqual({ latency_ms: 1 });
});

test('an objective by a metric that no run gives is refused', () => {
  const wrong = path.join(folder, 'wrong.json');
  const planWith = (metric: string) => {
    const objectives = [{ metric, direction: 'min' }];
    fs.writeFileSync(wrong, JSON.stringify({ workloads: [workload], scoring: { objectives } }));
    return () => loadPlan(wrong);
  };
  expect(planWith('ttft_p99')).toThrow(
    /scoring.objectives\[0\].metric is not known .*Did you mean ttft_p99_ms\?/,
  );
  expect(planWith('slo_attainment.critical.ttft')).not.toThrow();
});

test.each([
  [{}, /^\S+wrong\.json: workloads is missing\. Give it a list of paths of specifications\.$/],
  [{ workloads: [] }, /^\S+wrong\.json: workloads is empty\. Give it a list of paths/],
  [
    { workloads: ['no-such.yaml'] },
    /^\S+wrong\.json: workloads\[0\] is "no-such\.yaml", and \/\S+no-such\.yaml does not exist\. Give a path that can be read, as seen from the plan's folder\.$/,
  ],
])('a plan of %j names file, field, path and remedy', (plan, message) => {
  const wrong = path.join(folder, 'wrong.json');
  fs.writeFileSync(wrong, JSON.stringify(plan));
  expect(() => loadPlan(wrong)).toThrow(message);
  expect(() => loadPlan(wrong)).toThrow(
    expect.objectContaining({ path: wrong, field: expect.stringMatching(/^workloads/) }),
  );
});

test.each([
  [{ workload: [] }, 'workload', /workload is unknown here\. Did you mean 'workloads'\?/],
  [{ suites: { trains: {} } }, 'suites.trains', /suites\.trains is unknown here\. Did you mean 'train'\?/],
  [
    { suites: { train: { seeds: [1, 'x'] } } },
    'suites.train.seeds[1]',
    /suites\.train\.seeds\[1\] is "x", not an integer\. Set suites\.train\.seeds\[1\] to an integer\.$/,
  ],
  [{ suites: { train: {} } }, 'suites.train.seeds', /seeds is missing\. Give it a list of integers\.$/],
  [
    { suites: { train: { seeds: [1], perturbation: 2 } } },
    'suites.train.perturbation',
    /perturbation is 2, not a share from 0 to 0\.9\. Set suites\.train\.perturbation to a share from 0 to 0\.9\.$/,
  ],
  [
    { latencyModels: ['rofline'] },
    'latencyModels[0]',
    /latencyModels\[0\] is "rofline"\. Did you mean 'roofline'\?/,
  ],
  [{ slots: ['routings'] }, 'slots[0]', /slots\[0\] is "routings"\. Did you mean 'routing'\?/],
  [{ scoring: { mode: 3 } }, 'scoring.mode', /scoring\.mode is 3\. Set it to 'weighted' or 'slo-first'\.$/],
  [
    { scoring: { objectives: [] } },
    'scoring.objectives',
    /is empty\. Give it a list of objectives with name/,
  ],
  [
    { scoring: { objectives: [{ metric: 'latency_ms', direction: 'up' }] } },
    'scoring.objectives[0].direction',
    /direction is "up"\. Set it to 'min' or 'max'\.$/,
  ],
  [
    { scoring: { objectives: [{ metric: 'latency_ms', direction: 'min', weight: 0 }] } },
    'scoring.objectives[0].weight',
    /weight is 0, not a positive finite number\. Set scoring\.objectives\[0\]\.weight above 0\.$/,
  ],
  [
    { args: ['--modell', 'x'] },
    'args',
    /args are refused: --modell is an unknown option. Did you mean --model\?/,
  ],
  [{ args: ['--model', 'x'], deployment: {} }, 'args', /args comes beside deployment\. Keep one of them\.$/],
  [
    { deployment: { modell: 'x' } },
    'deployment.modell',
    /deployment\.modell is not known.*Did you mean model\?/,
  ],
  [{ deployment: { tp: 2 } }, 'deployment.model', /deployment\.model is missing\. Name a model\.$/],
  [
    { deployment: { model: 'x', latency: { floorr: true } } },
    'deployment.latency.floorr',
    /deployment\.latency\.floorr is not known.*Did you mean floor\?/,
  ],
])('a plan of %j names the field at fault and what to write', (more, field, message) => {
  const file = path.join(folder, 'faulty.json');
  fs.writeFileSync(file, JSON.stringify({ workloads: [workload], ...more }));
  expect(() => loadPlan(file)).toThrow(message);
  expect(() => loadPlan(file)).toThrow(expect.objectContaining({ path: file, field }));
});

test('arguments of a plan and its deployment are two ways to write one thing', () => {
  const file = path.join(folder, 'two-ways.json');
  const casesOf = (more: object): readonly SuiteCase[] => {
    fs.writeFileSync(file, JSON.stringify({ workloads: [workload], latencyModels: ['roofline'], ...more }));
    return loadPlan(file).suites.train;
  };
  const args = [
    ...['--model', 'qwen3-14b', '--num-instances', '3', '--total-kv-blocks=500', '--floor', '--tp', '2'],
    ...['--routing-policy', 'weighted', '--routing-scorers', 'queue-depth:2', '--rate', '5'],
  ];
  const [written] = casesOf({ args });
  expect(written.deployment.values).toEqual({
    model: 'qwen3-14b',
    tp: 2,
    'engine.kvBlocks': '500',
    'latency.floor': true,
    'latency.model': 'roofline',
    'control.routing.policy': 'weighted',
    'control.routing.scorers': { 'queue-depth': 2 },
    'pools.total': 3,
    'workload.rate': 5,
    'workload.file': expect.stringContaining('shared-prefixes'),
  });
  const [described] = casesOf({
    deployment: {
      ...{
        model: 'qwen3-14b',
        tp: 2,
        pools: { instances: 3 },
        engine: { kvBlocks: 500 },
        latency: { floor: true },
      },
      control: { routing: { policy: 'weighted', scorers: { 'queue-depth': 2 } } },
      workload: { rate: 5 },
    },
  });
  expect(described.deployment.values).toEqual(written.deployment.values);
  expect(new CaseCache().caseHash(described)).toBe(new CaseCache().caseHash(written));
});

test('a plan takes a deployment file, as seen from its own folder', async () => {
  fs.writeFileSync(
    path.join(folder, 'pools.yaml'),
    `version: 1
models: [{ name: qwen3-14b, hardware: H100, tp: 2, latency_model: roofline }]
pools: [{ name: chat, replicas: 3, engine: { total_kv_blocks: 4000 } }]
`,
  );
  const file = path.join(folder, 'pools.json');
  const suites = { train: { seeds: [1] } };
  const plan = {
    workloads: [workload],
    suites,
    deployment: { file: 'pools.yaml', workload: { requests: 40 } },
  };
  fs.writeFileSync(file, JSON.stringify(plan));
  const loaded = loadPlan(file);
  expect(loaded.suites.train.map(({ id }) => id)).toEqual(['shared-prefixes/file/1']);
  const limits = { workers: 1, wallMs: 100_000, heapMiB: 1024 };
  const evaluator = new SimulationEvaluator({ plan: loaded, limits });
  try {
    const [{ metrics, error }] = await evaluator.evaluate([preset('routing/lor')], 'train');
    expect([error, metrics.mean_replicas, metrics.requests]).toEqual([undefined, 3, 40]);
  } finally {
    await evaluator.close();
  }
  fs.writeFileSync(file, JSON.stringify({ ...plan, latencyModels: ['roofline'] }));
  expect(() => loadPlan(file)).toThrow(/latencyModels chooses models of time, and \S+pools\.yaml names them/);
  fs.writeFileSync(file, JSON.stringify(plan));
  expect(() => loadPlan(file, { latencyModels: ['roofline'] })).toThrow(
    /^latencyModels chooses models of time/,
  );
});

test.each([
  ['train', 5001],
  ['hidden', 2_000_000],
])('a plan of very many seeds in %s is refused before it is expanded', (suite, count) => {
  const file = path.join(folder, 'many.json');
  const seeds = Array.from({ length: count }, (_, i) => i);
  const plan = {
    workloads: [workload],
    latencyModels: ['roofline', 'calibrated'],
    suites: { [suite]: { seeds } },
  };
  fs.writeFileSync(file, JSON.stringify(plan));
  expect(() => loadPlan(file)).toThrow(
    new RegExp(`suites\\.${suite}\\.seeds has ${count} seeds, which come to ${2 * count} cases.*Name fewer`),
  );
});

test('a plan that cannot be read is said to be so', () => {
  expect(() => loadPlan('no-such.json')).toThrow(
    /^no-such\.json does not exist\. Name a file that is there\.$/,
  );
});
