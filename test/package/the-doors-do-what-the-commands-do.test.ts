/**
 * `simulate` and `evaluate` of `tierkv/sim` give what the commands of those names write, from
 * typed descriptions and without the command line.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { evaluate } from '../../src/policy/evaluate/evaluator.ts';
import { openPolicy } from '../../src/policy/evaluate/openPolicy.ts';
import { preset } from '../../src/policy/evolve/bundle/presets.ts';
import { TierKVError } from '../../src/runtime/errors.ts';
import { simulate } from '../../src/sim/build/simulate.ts';
import type { DeploymentSpec } from '../../src/sim/description/knobs.ts';
import { main } from '../command.ts';

const root = join(import.meta.dirname, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'tierkv-doors-'));
afterAll(() => rmSync(folder, { recursive: true }));

const tierkv = (...args: string[]): string =>
  execFileSync(process.execPath, [main, ...args], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });

/** Metrics of the cluster, as `tierkv simulate` writes them, without a row a request. */
function metricsOf(...args: string[]): unknown {
  const file = join(folder, 'metrics.json');
  tierkv('simulate', ...args, '--metrics-path', file);
  const { requests: _, tierkv: __, ...metrics } = JSON.parse(readFileSync(file, 'utf8'));
  return metrics;
}

/** As JSON has it: without fields that are undefined. */
const asJson = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe('simulate', () => {
  const cases: readonly (readonly [string, DeploymentSpec, readonly string[]])[] = [
    [
      'a model and a preset',
      { model: 'qwen/qwen3-14b', workload: { preset: 'chatbot', rate: 20, requests: 200 } },
      ['--model', 'qwen/qwen3-14b', '--workload', 'chatbot', '--rate', '20', '--num-requests', '200'],
    ],
    [
      'roles, tiers, policies, targets and seeds',
      {
        model: 'qwen/qwen2.5-7b-instruct',
        hardware: 'H100',
        tp: 1,
        latency: { model: 'roofline' },
        engine: { kvBlocks: 3000, maxSequences: 64, scheduler: 'sjf' },
        tiers: { hostBlocks: 2000, offloadThreshold: 0.9 },
        pools: { instances: 1, prefill: 1, decode: 2, decider: 'always' },
        control: {
          admission: { policy: 'token-bucket' },
          routing: { policy: 'weighted', scorers: { 'precise-prefix-cache': 1, 'queue-depth': 2 } },
          snapshotUs: 10_000,
        },
        workload: { rate: 30, requests: 120, prompt: { mean: 400, stdDev: 100, max: 900 }, output: 40 },
        targets: { ttftMs: { default: 200 } },
        seed: 7,
      },
      [
        ...['--model', 'qwen/qwen2.5-7b-instruct', '--hardware', 'H100', '--tp', '1'],
        ...['--latency-model', 'roofline', '--total-kv-blocks', '3000', '--max-num-seqs', '64'],
        ...['--scheduler', 'sjf', '--kv-cpu-blocks', '2000', '--kv-offload-threshold', '0.9'],
        ...['--num-instances', '4', '--prefill-instances', '1', '--decode-instances', '2'],
        ...['--prefill-decode-instances', '1', '--pd-decider', 'always'],
        ...['--admission-policy', 'token-bucket', '--routing-policy', 'weighted'],
        ...['--routing-scorers', 'precise-prefix-cache:1,queue-depth:2'],
        ...['--snapshot-refresh-interval', '10000', '--rate', '30', '--num-requests', '120'],
        ...['--prompt-tokens', '400', '--prompt-tokens-stdev', '100', '--prompt-tokens-max', '900'],
        ...['--output-tokens', '40', '--slo-ttft', 'default=200ms', '--seed', '7'],
      ],
    ],
  ];

  it.each(cases)('%s: the metrics that the command writes', (_, spec, args) => {
    const { metrics, instances, conservation } = simulate(spec);
    expect(conservation.injected).toBe(spec.workload?.requests);
    expect(instances.length).toBe(args.includes('--num-instances') ? 4 : 1);
    expect(asJson({ ...metrics, requests: undefined })).toEqual(metricsOf(...args));
  });

  it.each([
    [{ model: 'qwen/qwen3-14b', workload: { preset: 'chatbot', rats: 20 } }, 'workload.rats', /rate/],
    [{ model: 'qwen/qwen3-14b', pools: { instances: 5000 } }, 'pools.instances', /1024/],
    [{ model: 'qwen/qwen3-14b', engine: { scheduler: 'fsfc' } }, 'engine.scheduler', /fcfs/],
    [{ model: 'qwen/qwen3-14b', workload: 'chatbot' }, 'workload', /object/],
    [
      { model: 'qwen/qwen3-14b', control: { routing: { policy: 'wighted' } } },
      'control.routing.policy',
      /weighted/,
    ],
    [{}, 'model', /missing/],
  ])('a mistake in %j is about the field %s', (spec, field, message) => {
    let error: unknown;
    try {
      simulate(spec as unknown as DeploymentSpec);
    } catch (cause) {
      error = cause;
    }
    expect(error).toBeInstanceOf(TierKVError);
    expect(error).toMatchObject({ code: 'TKV_CONFIG', field });
    expect(String(error)).toMatch(message);
  });
});

describe('evaluate', () => {
  const plan = join(folder, 'plan.json');
  writeFileSync(
    plan,
    JSON.stringify({
      workloads: [join(root, 'data', 'suites', 'shared-prefixes.yaml')],
      latencyModels: ['roofline'],
      args: ['--model', 'qwen/qwen2.5-7b-instruct', '--num-instances', '3', '--num-requests', '60'],
      suites: { train: { seeds: [1, 2], perturbation: 0.1 } },
    }),
  );

  it('gives the evaluation that the command writes', async () => {
    const name = 'routing/least-loaded';
    const evaluation = await evaluate(preset(name), plan, { workers: 1 });
    const report = JSON.parse(tierkv('evaluate', name, '--plan', plan, '--workers', '1', '--json')).result;
    expect(evaluation.error).toBe(undefined);
    expect(evaluation.cases?.length).toBe(2);
    expect(report.results[0]).toMatchObject(asJson(evaluation) as object);
    expect(evaluation.policyId).not.toBe(
      (await evaluate(openPolicy('baseline'), plan, { workers: 1 })).policyId,
    );
  });
});
