import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';
import { main } from '../../command.ts';

const here = fileURLToPath(new URL('.', import.meta.url));
const packageFolder = fileURLToPath(new URL('../../../python/tierkv_evolve', import.meta.url));
const env = { ...process.env, PYTHONPATH: [packageFolder, here].join(path.delimiter) };
const serve = [process.execPath, path.join(here, 'server.ts')];
const out = mkdtempSync(path.join(tmpdir(), 'tierkv-frameworks-'));
afterAll(() => rmSync(out, { recursive: true, force: true }));

function lacks(statement: string, remedy: string): boolean {
  try {
    execFileSync('python3', ['-c', statement], { stdio: 'ignore' });
    return false;
  } catch {
    console.warn(`SKIPPED: ${remedy}`);
    return true;
  }
}

async function python(args: readonly string[]): Promise<string> {
  const limits = { env, maxBuffer: 1 << 26, timeout: 240_000 };
  return (await promisify(execFile)('python3', args, limits)).stdout;
}

function reportOf(output: string): Record<string, unknown> {
  const line = output.split('\n').find((each) => each.startsWith('REPORT '));
  if (line === undefined) throw new Error(`no report in:\n${output}`);
  return JSON.parse(line.slice('REPORT '.length)) as Record<string, unknown>;
}

const noPython = lacks(
  'import sys; assert sys.version_info >= (3, 10)',
  'the adapters need a Python of at least 3.10',
);
const noOpenEvolve = lacks('import openevolve', 'openevolve is not here (pip install openevolve==0.4.1)');
const noGepa = lacks('import gepa', 'gepa is not here (pip install gepa==0.1.4)');

it.skipIf(noPython)(
  'candidates that hang or stop the evaluator cost no other one its evaluation',
  async () => {
    const found = JSON.parse(await python([path.join(here, 'client.py'), ...serve])) as {
      status: Record<string, string>;
      scores: Record<string, number>;
      kinds: Record<string, string>;
      metrics: Record<string, string[]>;
      forked: number;
      afterFork: number;
      again: boolean;
      noEvaluator: string;
    };
    for (let i = 0; i < 8; i++) {
      expect(found.status[`good ${i}`]).toBe('success');
      expect(found.scores[`good ${i}`]).toBeCloseTo(1 + 0.75 - Math.abs(i / 10 - 0.75), 9);
    }
    expect(found.kinds).toEqual({
      hangs: 'infrastructure_timeout',
      freezes: 'infrastructure_timeout',
      broken: 'compile',
      frozen: 'frozen_region_edited',
    });
    for (const names of Object.values(found.metrics)) expect(names).toEqual(found.metrics['good 0']);
    expect(found.again).toBe(true);
    expect(found.forked).toBeCloseTo(1.65, 9);
    expect(found.afterFork).toBeCloseTo(1.66, 9);
    expect(found.noEvaluator).toMatch(/ends with code 1 at once/);
  },
);

it.skipIf(noPython)('SkyDiscover gets its one object of JSON', async () => {
  const file = path.join(out, 'policy.star');
  const text =
    'WEIGHT = 0.5\ndef score(request, cluster, instances):\n    return [WEIGHT for i in instances]\n';
  writeFileSync(file, text);
  const command = serve.map((part) => `'${part}'`).join(' ');
  const run = ['-m', 'tierkv_evolve.skydiscover', file, 'train', '--command', command];
  const good = JSON.parse(await python(run)) as Record<string, unknown>;
  expect(Object.keys(good).sort()).toEqual(['artifacts', 'combined_score', 'metrics', 'status']);
  expect(good).toMatchObject({ status: 'success', combined_score: 1.5 });
  writeFileSync(file, 'def score(:\n');
  expect(JSON.parse(await python(run))).toMatchObject({ status: 'error', combined_score: 0 });
});

it.skipIf(noPython)(
  'an initial candidate without a score is an error with its reason, and never a run of zeros',
  async () => {
    const folder = path.join(out, 'initial');
    mkdirSync(folder);
    const found = JSON.parse(await python([path.join(here, 'initial.py'), folder, ...serve])) as Record<
      string,
      unknown
    >;
    for (const way of ['good', 'good gepa', 'good anything']) expect(found[way]).toBe(null);
    expect(found['good checked']).toBe(true);
    for (const [name, why] of [
      ['broken', /has no score\. compile: /],
      ['hangs', /has no score\. infrastructure_timeout: .*deadline_s.*smaller plan/],
    ] as const) {
      expect(found[name]).toMatch(/^the initial candidate .*\.star has no score/);
      for (const way of [name, `${name} gepa`, `${name} anything`]) expect(found[way]).toMatch(why);
      expect(found[`${name} checked`]).toBe(false);
    }
    expect(found.absent).toMatch(/no-such-program-here cannot be run: .*TIERKV_EVOLVE_COMMAND/);
    expect(found['no time']).toMatch(/^deadline_s is 0/);
    expect(found.outside).toEqual(['tierkv', 'evaluate', '--serve']);
    expect(found.checkout).toEqual(expect.arrayContaining(['npm', 'run', 'tierkv', 'evaluate', '--serve']));
  },
);

it.skipIf(noPython || noOpenEvolve)(
  'OpenEvolve ends 16 iterations with a better policy than it began with, whatever hangs',
  async () => {
    const report = reportOf(
      await python([path.join(here, 'openevolve_run.py'), path.join(out, 'open'), '2', 'hit_rate', ...serve]),
    );
    expect(report.bestScore).toBeGreaterThan(1.1 + 0.1);
    expect(report.programs).toBeGreaterThan(10);
    expect(report.timeouts).toBe(0);
    expect(report.metrics).toEqual(expect.arrayContaining(['combined_score', 'gain_latency', 'hit_rate']));
  },
);

it.skipIf(noPython || noGepa)(
  'GEPA ends with a better policy than it began with, by both of its doors',
  async () => {
    const report = reportOf(await python([path.join(here, 'gepa_run.py'), '2', '160', ...serve]));
    const { first, best, anything } = report as { first: number; best: number; anything: number };
    expect(best).toBeGreaterThan(first + 0.1);
    expect(anything).toBeGreaterThan(first + 0.1);
    expect(report.proposals).toBeGreaterThanOrEqual(16);
  },
);

/** The command line over a small plan. */
function simulations(): string[] {
  const plan = path.join(out, 'plan.json');
  const workload = path.join(here, 'two-groups.yaml');
  writeFileSync(plan, JSON.stringify({ workloads: [workload], latencyModels: ['roofline'] }));
  return [process.execPath, main, 'evaluate', '--serve', '--plan', plan, '--regrets', '0'];
}

it.skipIf(noPython || noOpenEvolve)(
  'OpenEvolve finds a better policy over simulations, in 16 iterations',
  async () => {
    const run = path.join(here, 'openevolve_run.py');
    const args = [run, path.join(out, 'simulated'), '30', 'cache_hit_rate', ...simulations()];
    const { firstScore, bestScore, timeouts } = reportOf(await python(args));
    expect(bestScore).toBeGreaterThan(Number(firstScore) + 0.05);
    expect(timeouts).toBe(0);
  },
);

it.skipIf(noPython || noGepa)('GEPA finds a better policy over simulations, in 16 proposals', async () => {
  const args = [path.join(here, 'gepa_run.py'), '30', '160', ...simulations()];
  const report = reportOf(await python(args));
  const { first, best, anything } = report as { first: number; best: number; anything: number };
  expect(best).toBeGreaterThan(first + 0.05);
  expect(anything).toBeGreaterThan(first + 0.05);
  expect(report.proposals).toBeGreaterThanOrEqual(16);
});
