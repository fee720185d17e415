/** `tierkv evaluate --serve` and `--skydiscover` in processes of their own, over simulations. */

import { spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { ServiceAnswer } from '../../../src/policy/evolve/serve.ts';
import { main } from '../../command.ts';
import { smallWorkload } from './smallWorkload.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-serve-'));
const plan = path.join(folder, 'plan.json');
const program =
  'def score(request, cluster, instances):\n    return [1.0 / (1 + i.inFlight) for i in instances]\n';
const slow =
  'def score(request, cluster, instances):\n    return [sum3(i) for i in instances]\n\ndef sum3(i):\n    n = 0\n    for k in range(12000):\n        n = n + k\n    return n\n';

beforeAll(() => {
  fs.writeFileSync(path.join(folder, 'small.yaml'), smallWorkload);
  fs.writeFileSync(plan, JSON.stringify({ workloads: ['small.yaml'], latencyModels: ['roofline'] }));
});
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

it('a process answers by lines of JSON until its input ends, the same as SkyDiscover gets', async () => {
  const child = spawn(process.execPath, [main, 'evaluate', '--serve', '--plan', plan, '--workers', '2']);
  const answers = new Map<unknown, { result: ServiceAnswer }>();
  createInterface({ input: child.stdout }).on('line', (line) => {
    const answer = JSON.parse(line) as { id: unknown; result: ServiceAnswer };
    answers.set(answer.id, answer);
  });
  const ended = new Promise((resolve) => child.once('close', resolve)); // all that it said has come by then
  const ask = (id: string, method: string, params: object = {}): void => {
    child.stdin.write(`${JSON.stringify({ id, method, params })}\n`);
  };
  ask('baseline', 'baseline');
  ask('good', 'evaluate', { candidate: { routing: program } });
  ask('broken', 'evaluate', { candidate: { routing: 'def score(:\n' } });
  ask('steps', 'evaluate', { candidate: { routing: slow } });
  child.stdin.end();
  expect(await ended).toBe(0);
  const [baseline, good, broken, steps] = ['baseline', 'good', 'broken', 'steps'].map(
    (id) => answers.get(id)?.result,
  );
  expect(baseline).toMatchObject({ status: 'success', combined_score: 1 });
  expect(good?.status).toBe('success');
  expect(good?.per_scenario.map(({ id }) => id)).toEqual(baseline?.per_scenario.map(({ id }) => id));
  expect(good?.artifacts.trace_summary).toContain('Outcome');
  expect(broken?.error?.kind).toBe('compile');
  expect(steps?.error?.kind).toBe('step_limit');
  for (const answer of [broken, steps]) {
    expect(Object.keys(answer?.metrics ?? {}).sort()).toEqual(Object.keys(good?.metrics ?? {}).sort());
  }

  const file = path.join(folder, 'policy.star');
  fs.writeFileSync(file, program);
  const args = [main, 'evaluate', file, '--skydiscover', '--plan', plan];
  const { stdout, status } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  expect(status).toBe(0);
  const { status: state, combined_score, metrics, artifacts } = good as ServiceAnswer;
  expect(JSON.parse(stdout)).toEqual({ status: state, combined_score, metrics, artifacts });
});

it.each(['SIGTERM', 'shutdown'])('over HTTP it says where it listens, and ends by %s', async (how) => {
  const args = [main, 'evaluate', '--serve', '--http', '0', '--plan', plan];
  const child = spawn(process.execPath, args);
  const ended = new Promise((resolve) => child.once('close', resolve));
  const url = await new Promise<string>((resolve) => {
    createInterface({ input: child.stderr }).on('line', (line) => {
      const match = /listening on (\S+)/.exec(line);
      if (match !== null) resolve(match[1]);
    });
  });
  const body = JSON.stringify({ candidate: { routing: program } });
  const answer = (await (await fetch(`${url}/evaluate`, { method: 'POST', body })).json()) as {
    score: number;
  };
  expect(answer.score).toBeGreaterThan(0);
  if (how === 'SIGTERM') child.kill('SIGTERM');
  else {
    const request = JSON.stringify({ id: 1, method: 'shutdown' });
    const response = await fetch(`${url}/rpc`, { method: 'POST', body: request });
    expect(await response.json()).toEqual({ id: 1, result: {} });
  }
  expect(await ended).toBe(0);
});

it('SkyDiscover gets an answer for a candidate that fails, and a message for a call that does', () => {
  const file = path.join(folder, 'bad.star');
  fs.writeFileSync(file, 'def score(:\n');
  const run = (...args: string[]): { status: number | null; stdout: string; stderr: string } =>
    spawnSync(process.execPath, [main, 'evaluate', ...args, '--skydiscover', '--plan', plan], {
      encoding: 'utf8',
    });
  const bad = run(file);
  expect([bad.status, JSON.parse(bad.stdout)]).toMatchObject([0, { status: 'error', combined_score: 0 }]);
  const none = run();
  expect([none.status, none.stderr]).toEqual([2, expect.stringContaining('Name the file of one candidate')]);
});
