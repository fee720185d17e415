/**
 * Rates, times and seeds are of the run that was: a piece of a trace is served as fast whenever it begins, a run that served
 * nothing has no times and wins nothing, and the seed that is printed is the one that drew the requests.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { explainCommand } from '../../../src/cli/explain.ts';
import { latencyCommand } from '../../../src/cli/latency/command.ts';
import { cheapest, sweepTable } from '../../../src/cli/sweep/report.ts';
import { sweepReport } from '../../../src/observe/report/sweepReport.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { hasRun, type PointResult, planPoint, runPoint } from '../../../src/sim/build/point.ts';
import { outputRows } from '../../../src/sim/description/knobs/beside.ts';
import { readWords } from '../../../src/sim/description/readers.ts';
import { runTrial } from '../../../src/studies/plan/trial.ts';
import { resultOf } from '../../resultSchema.ts';
import { printedBy } from '../printed.ts';
import { printed } from './printed.ts';
import { pointsOf } from './sweptPoints.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-served-'));
afterAll(() => rmSync(folder, { recursive: true }));
const model = ['--model', 'qwen3-14b'];

function trace(name: string, fromS: number): string {
  const rows = Array.from({ length: 30 }, (_, i) => `${fromS + i / 5},${100 + 7 * i},${5 + i}`);
  const file = join(folder, name);
  writeFileSync(file, `arrived_at,num_prefill_tokens,num_decode_tokens\n${rows.join('\n')}\n`);
  return file;
}

async function resulted<Result>(...args: string[]): Promise<Result> {
  const json = join(folder, 'result.json');
  await printed(...args, '--json', json);
  return resultOf<Result>('simulate', readFileSync(json, 'utf8'));
}

interface Served {
  readonly served: {
    readonly fromS: number;
    readonly requestsPerS: number;
    readonly outputTokensPerS: number;
  };
  readonly metrics: { readonly responses_per_sec: number };
}

describe('a trace that begins later', () => {
  const early = trace('early.csv', 0);
  const late = trace('late.csv', 3600);

  it('is served at the same rates', async () => {
    const of = (file: string): Promise<Served> => resulted<Served>(file, ...model);
    const [a, b] = [await of(early), await of(late)];
    expect(b.served.fromS).toBe(3600);
    expect(b.served.requestsPerS).toBeCloseTo(a.served.requestsPerS, 6);
    expect(b.served.outputTokensPerS).toBeCloseTo(a.served.outputTokensPerS, 4);
    // upstream's count from 0
    expect(b.metrics.responses_per_sec).toBeLessThan(a.metrics.responses_per_sec / 100);
    const text = await printed(late, ...model, '--slo-ttft', 'default=10s');
    expect(text).toMatch(/from 1 h.* on; /);
    const [, perS] = /; ([\d.]+) requests and/.exec(text) ?? [];
    expect(text).toContain(`goodput ${perS} requests a second`);
  });

  it('in a sweep and in a plan too', () => {
    const point = (file: string): PointResult =>
      runPoint(planPoint(pointsOf(['num-instances=1'], [file, ...model])[0]));
    const [a, b] = [point(early), point(late)];
    expect(b.responsesPerS).toBeCloseTo(a.responsesPerS, 6);
    expect(b.tokensPerS).toBeCloseTo(a.tokensPerS, 4);
    const trial = (file: string) => {
      const [{ read }] = pointsOf([], [file, ...model]);
      const answer = runTrial({ plan: planSimulation(read()) });
      return 'error' in answer ? expect.fail(answer.error.message) : answer;
    };
    expect(trial(late).busyShare).toBeCloseTo(trial(early).busyShare, 6);
    expect(trial(late).requestsPerS).toBeCloseTo(trial(early).requestsPerS, 6);
  });
});

describe('a run that served nothing', () => {
  const base = [...model, '--num-requests', '10'];
  const points = pointsOf(['admission-policy=reject-all,always-admit'], base);
  const results = points.map((point) => runPoint(planPoint(point)));
  const [nothing, all] = results;

  it('meets no target, leads no table and has dashes for times', () => {
    expect(nothing.completed).toBe(0);
    expect(cheapest([nothing], { ttftMs: 1e9 })).toBe(undefined);
    const [, , , first, second] = sweepTable(results, { ttftMs: 1e9 }).split('\n');
    expect(first).toMatch(/0\/10 │ +0\.00 │ +- │ +- │ +- │ +- │/);
    expect(second).toMatch(/10\/10 .* ms │/);
    const nameOf = ({ values }: Pick<PointResult, 'values'>): string => values['admission-policy'];
    const grid = { targets: undefined, byDemand: [], meets: () => true, nameOf, command: '' };
    const report = sweepReport({ ...grid, results });
    expect(report.answer).toMatch(/^always-admit has the shortest first token/);
    expect(sweepReport({ ...grid, results: [nothing] }).answer).toBe('No point serves a request.');
    expect(all.ttftP99Ms).toBeGreaterThan(0);
  });

  it('as an instance among others, too, and says so where the run ends before it began', async () => {
    const text = await printed(...base, '--num-instances', '2', '--admission-policy', 'reject-all');
    expect(text).toMatch(/instance_1 │ +0 │ +0 │ +0 │ +- │ +- │ +- │ +- │ +- │ +- │/);
    const early = await resulted<{ readonly conservation: { readonly injected: number } }>(
      ...base,
      '--horizon',
      '60',
    );
    expect(early.conservation.injected).toBe(0);
  });

  it('for want of room is a point that cannot run, as it is an error of simulate', () => {
    const [point] = pointsOf(['hbm=1'], base).map(planPoint);
    expect(() => runPoint(point)).toThrow(/none of 10 requests fits/);
    expect(results.every(hasRun)).toBe(true);
  });
});

describe('options behind --', () => {
  const flags = [...outputRows.map(([each]) => each.split(' ')[0]), '--slo-ttft', '--slo-itl', '--slo-e2e'];
  it.each(flags.filter((flag) => flag !== '--log'))(
    '%s is refused where nothing is written',
    async (flag) => {
      const value = flag === '--summarize-trace' ? [] : flag.startsWith('--slo') ? ['default=1s'] : ['1'];
      const words = [...model, '--num-requests', '3', flag, ...value];
      expect(() => pointsOf(['rate=1'], words), flag).toThrow(
        `${flag} says what a run of tierkv simulate writes`,
      );
      const asked = ['--simulated', '--request', 'request_0', '--', ...words];
      await expect(printedBy(explainCommand(), ...asked), flag).rejects.toThrow(`${flag} says what a run`);
    },
  );

  it('and an option that the grid has values of', () => {
    expect(() => pointsOf(['rate=1,2'], [...model, '--rate', '5'])).toThrow(
      /has values of rate, which stands behind --/,
    );
    expect(() => pointsOf(['gpu=H100'], [...model, '--hardware', 'H200'])).toThrow(/stands behind -- too/);
    expect(pointsOf(['rate=1,2'], model)).toHaveLength(2);
    expect(readWords(model).words).toEqual([]);
  });
});

it('the seed that is printed is the one that drew the requests', async () => {
  const spec = (seed: string): string => `version: "2"
${seed}aggregate_rate: 5
num_requests: 4
clients:
  - {id: a, rate_fraction: 1, arrival: {process: poisson}, input_distribution: {type: constant, params: {value: 50}}, output_distribution: {type: constant, params: {value: 3}}}
`;
  const file = join(folder, 'seed.yaml');
  const run = async (seed: string, ...more: string[]): Promise<[line: string, seed: string, e2e: number]> => {
    writeFileSync(file, spec(seed));
    const text = await printed(file, ...model, ...more);
    const json = await resulted<{
      readonly provenance: { readonly seed: string };
      readonly metrics: { readonly vllm_estimated_duration_s: number };
    }>(file, ...model, ...more);
    const { provenance, metrics } = json;
    return [/seed (\d+)\n/.exec(text)?.[1] ?? '', provenance.seed, metrics.vllm_estimated_duration_s];
  };
  const own = await run('seed: 9007199254740993\n');
  expect(own.slice(0, 2)).toEqual(['9007199254740993', '9007199254740993']);
  expect(await run('', '--seed', '9007199254740993')).toEqual(own);
  expect((await run('seed: 7\n')).slice(0, 2)).toEqual(['7', '7']);
  expect((await run('seed: 7\n', '--seed', '8')).slice(0, 2)).toEqual(['8', '8']);
});

it('a rate of conversations beside single requests is told as the rate of both', async () => {
  const client = (id: string, more: string): string =>
    `  - {id: ${id}, rate_fraction: 0.5, arrival: {process: poisson}, ` +
    `input_distribution: {type: constant, params: {value: 50}}, output_distribution: {type: constant, params: {value: 5}}${more}}`;
  const talk = ', reasoning: {multi_turn: {max_rounds: 3, think_time_us: 1000, context_growth: accumulate}}';
  const lineOf = async (name: string, ...clients: string[]): Promise<string> => {
    const file = join(folder, `${name}.yaml`);
    writeFileSync(file, `version: "2"\nseed: 1\naggregate_rate: 20\nclients:\n${clients.join('\n')}\n`);
    const text = await printed(file, ...model, '--num-requests', '12');
    return /^workload: .*$/m.exec(text)?.[0].replace(file, 'file') ?? '';
  };
  expect(await lineOf('mixed', client('a', ''), client('b', talk))).toMatch(
    /^workload: file, 20 single requests and conversations of up to 3 rounds begin a second, \d+ conversations in all, seed 1$/,
  );
  expect(await lineOf('alike', client('a', talk), client('b', talk))).toMatch(
    /^workload: file, 20 conversations of up to 3 rounds begin a second, \d+ in all, seed 1$/,
  );
});

describe('conversations that last longer than the run', () => {
  const chat = (...more: string[]): PointResult => {
    const words = [...model, '--workload', 'chat', '--rate', '4', '--num-requests', '60', ...more];
    return runPoint(planPoint(pointsOf([], words)[0]));
  };

  it('are told with the rate that came, and the number that holds the rate holds it', () => {
    const [short] = chat().warnings;
    expect(short).toMatch(/^0\.\d+ requests a second came on average, not 4: .* --num-requests \d+ or more/);
    const [hasty] = chat('--think-time-ms', '1s').warnings;
    const enough = /--num-requests (\d+)/.exec(hasty ?? '')?.[1] ?? expect.fail('no number');
    expect(chat('--think-time-ms', '1s', '--num-requests', enough).warnings).toEqual([]);
    const plain = pointsOf([], [...model, '--rate', '4', '--num-requests', '60'])[0];
    expect(runPoint(planPoint(plain)).warnings).toEqual([]);
  });
});

it('times of classes are in milliseconds, as all others', async () => {
  const file = join(folder, 'classes.yaml');
  const client = (id: string, slo: string): string =>
    `  - {id: ${id}, slo_class: ${slo}, rate_fraction: 1, arrival: {process: poisson}, input_distribution: {type: constant, params: {value: 50}}, output_distribution: {type: constant, params: {value: 3}}}\n`;
  writeFileSync(
    file,
    `version: "2"\naggregate_rate: 1\nnum_requests: 20\nclients:\n${client('a', 'critical')}${client('b', 'batch')}`,
  );
  const text = await printed(file, ...model);
  const [, e2e] = /whole request \(E2E\) +│ +([\d.]+)/.exec(text) ?? [];
  const means = [...text.matchAll(/E2E: {2}mean=([\d.]+) p99=[\d.]+ ms \(n=(\d+)\)/g)];
  expect(means).toHaveLength(2);
  const sum = means.reduce((all, [, mean, count]) => all + Number(mean) * Number(count), 0);
  expect(sum / 20).toBeCloseTo(Number(e2e), 0);
});

it.each([
  ['qwen3-14b', 'H100', '1'],
  ['llama-3.1-70b', 'H200', '4'],
  ['gpt-oss-20b', 'L40S', '2'],
])('KV blocks of %s on %s x %s are the same in latency predict and in simulate', async (name, gpu, tp) => {
  const machine = ['--model', name, '--gpu', gpu, '--tp', tp];
  const predicted = await printedBy(
    latencyCommand(),
    'predict',
    ...machine,
    '--latency-model',
    'roofline',
    '--batch',
    'decode=1@64',
  );
  const [, blocks] = /KV blocks (\d+)/.exec(predicted) ?? [];
  const simulated = await printed(...machine, '--num-requests', '1');
  const [, shown] = /hbm ([\d,]+) blocks/.exec(simulated) ?? [];
  expect(Number(blocks)).toBe(Number(shown?.replaceAll(',', '')));
});
