/** `tierkv evaluate` of several policies, of which some fail: who is ahead, and what is wrong with the others. */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { main } from '../../command.ts';
import { resultOf } from '../../resultSchema.ts';
import { smallWorkload } from './smallWorkload.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-told-'));
afterAll(() => fs.rmSync(folder, { recursive: true }));

fs.writeFileSync(path.join(folder, 'small.yaml'), smallWorkload);
fs.writeFileSync(
  path.join(folder, 'plan.json'),
  JSON.stringify({
    workloads: ['small.yaml'],
    latencyModels: ['roofline'],
    suites: { train: { seeds: [1] } },
  }),
);
fs.writeFileSync(
  path.join(folder, 'none.star'),
  'def score(request, cluster, instances):\n    return [None + i.inFlight for i in instances]\n',
);

function evaluate(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  // models of time are compared without a page, so there is nothing to try otherwise
  const regrets = args.includes('--latency') ? [] : ['--regrets', '0'];
  const all = [main, 'evaluate', ...args, '--plan', 'plan.json', ...regrets];
  return spawnSync(process.execPath, all, { cwd: folder, encoding: 'utf8' });
}

const problem =
  /none\.star has no score\. policy_runtime: routing, line 2, request \S+, at \d+ µs: "\+" does not take/;

test('a ranking has the message of each that failed, and tells the first that ran', () => {
  const { status, stdout } = evaluate('none.star', 'routing/lor', 'routing/llq');
  expect(status).toBe(2);
  expect(stdout).toMatch(problem);
  expect(stdout).toContain('routing/lor on train');
  expect(stdout).toContain('front');
});

/** Of a policy that failed there is neither. */
interface Compared {
  readonly results: { readonly front: number; readonly objectives: number[] }[];
  readonly hypervolume: number;
}

test('its JSON has the Pareto front of each that ran, and the hypervolume of all', () => {
  const { stdout } = evaluate('none.star', 'routing/lor', 'routing/llq', '--json');
  const { results, hypervolume } = resultOf<Compared>('evaluate', stdout);
  const fronts = results.map(({ front }) => front);
  expect(fronts[0]).toBe(undefined);
  expect(Math.min(fronts[1], fronts[2])).toBe(1);
  const volume = (objectives: number[]): number => objectives.reduce((all, gain) => all * (gain + 10), 1);
  const each = results.slice(1).map(({ objectives }: { objectives: number[] }) => volume(objectives));
  expect(hypervolume).toBeGreaterThanOrEqual(Math.max(...each));
  expect(hypervolume).toBeLessThanOrEqual(each[0] + each[1]);
});

test('over several models of time as well, with JSON and without a verdict', () => {
  const { status, stdout } = evaluate('none.star', 'routing/lor', '--latency', 'roofline,blackbox');
  expect(status).toBe(2);
  expect(stdout).toMatch(problem);
  expect(stdout).toContain('no verdict');
  const out = evaluate('routing/lor', '--latency', 'roofline,blackbox', '--json').stdout;
  const json = resultOf<{ policies: unknown; worlds: { name: string }[]; pairs: unknown }>('evaluate', out);
  expect(json.policies).toEqual(['routing/lor', 'baseline']);
  expect(json.worlds.map(({ name }: { name: string }) => name)).toEqual(['roofline', 'blackbox']);
  expect(json.pairs).toHaveLength(1);
});

test('with prefill and decode instances, decisions are taken again where the request could go', () => {
  const pools = ['--num-instances', '4', '--prefill-instances', '2', '--decode-instances', '2'];
  const plan = {
    workloads: ['small.yaml'],
    latencyModels: ['roofline'],
    suites: { train: { seeds: [1] } },
    args: ['--model', 'qwen/qwen3-14b', ...pools, '--pd-decider', 'always'],
  };
  fs.writeFileSync(path.join(folder, 'pools.json'), JSON.stringify(plan));
  const told = [main, 'evaluate', 'routing/lor', '--plan', 'pools.json', '--regrets', '3'];
  const { status, stdout, stderr } = spawnSync(process.execPath, told, { cwd: folder, encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toContain('3 decisions were taken again otherwise');
  const tried = [...stdout.matchAll(/instance (\d) took \d+ ms, others (\d): /g)];
  expect(tried.length).toBe(3);
  for (const [, chosen, other] of tried) expect([chosen, other].sort()).toEqual(['2', '3']);
});

test('a program that cannot be parsed is refused before any case of a plan runs', () => {
  // the cases of this plan would take hours: only a refusal before them ends in time
  const hours = smallWorkload.replace('num_requests: 60', 'num_requests: 200000000');
  fs.writeFileSync(path.join(folder, 'hours.yaml'), hours);
  fs.writeFileSync(path.join(folder, 'hours.json'), JSON.stringify({ workloads: ['hours.yaml'] }));
  fs.writeFileSync(path.join(folder, 'bad.star'), 'def score(request, cluster, instances):\n    return [\n');
  const all = [main, 'evaluate', 'bad.star', '--plan', 'hours.json'];
  const { status, stdout } = spawnSync(process.execPath, all, {
    cwd: folder,
    encoding: 'utf8',
    timeout: 240_000,
  });
  expect(status).toBe(2);
  expect(stdout).toMatch(/^bad\.star has no score\. compile: routing, line 2: /m);
});

test('a plan in the place of a policy is told where it belongs', () => {
  const { status, stderr } = evaluate('plan.json');
  expect(status).toBe(2);
  expect(stderr).toBe(
    'tierkv: policy is plan.json, which is a plan of evaluation. Give it as --plan plan.json. [TKV_CONFIG]\n',
  );
});
