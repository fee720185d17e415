/** `tierkv evolve` in processes of its own: its files, a kill in the middle, any number of threads, mistakes. */

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { DirectoryLock } from '../../../src/backends/file/directoryLock.ts';
import { readBundle } from '../../../src/policy/evolve/bundle/readBundle.ts';
import type { SearchState } from '../../../src/policy/evolve/search/breeding.ts';
import { main } from '../../command.ts';
import { smallWorkload } from '../evaluate/smallWorkload.ts';
import { endOf } from '../printed.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-evolve-'));
const plan = path.join(folder, 'plan.json');
const options = [
  '--plan',
  plan,
  '--slots',
  'routing',
  '--population',
  '6',
  '--generations',
  '3',
  '--finalists',
  '3',
];

beforeAll(() => {
  fs.writeFileSync(path.join(folder, 'small.yaml'), smallWorkload);
  const suite = (seed: number): object => ({ seeds: [seed], perturbation: 0.1 });
  const suites = { train: suite(1), validation: suite(2), hidden: suite(3) };
  fs.writeFileSync(plan, JSON.stringify({ workloads: ['small.yaml'], latencyModels: ['roofline'], suites }));
});
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

function evolve(out: string, ...more: string[]): { status: number | null; stdout: string; stderr: string } {
  const args = [main, 'evolve', '--out', path.join(folder, out), ...options, ...more];
  return spawnSync(process.execPath, args, { encoding: 'utf8' });
}

function stateOf(out: string): string {
  return fs.readFileSync(path.join(folder, out, 'state.json'), 'utf8');
}

/** Ends the process without warning once the state of that generation is there. */
async function killAfter(out: string, generation: number, policy: string): Promise<void> {
  const args = [
    main,
    'evolve',
    policy,
    '--out',
    path.join(folder, out),
    ...options,
    '--workers',
    '1',
    '--no-plots',
  ];
  const child = spawn(process.execPath, args, { stdio: 'ignore' });
  const ended = new Promise((resolve) => child.once('close', resolve));
  const reached = (): boolean => {
    try {
      return (JSON.parse(stateOf(out)) as SearchState).generation >= generation;
    } catch {
      return false;
    }
  };
  while (!reached() && child.exitCode === null) await new Promise((resolve) => setTimeout(resolve, 20));
  child.kill('SIGKILL');
  await ended;
}

it('goes on after a kill to what an uninterrupted search gives, on another number of threads', async () => {
  const own = path.join(folder, 'own.star');
  fs.writeFileSync(
    own,
    'def score(request, cluster, instances):\n    return [0.5 - i.load for i in instances]\n',
  );
  const whole = evolve('whole', own, '--workers', '2');
  expect(whole.stderr).not.toContain('tierkv:');
  expect(whole.status).toBe(0);
  let killed: string;
  // on a busy machine the kill may come when the search is over: then it is tried once more
  for (let times = 0; ; times++) {
    killed = `killed-${times}`;
    await killAfter(killed, 1, own);
    if ((JSON.parse(stateOf(killed)) as SearchState).generation < 3) break;
  }
  const resumed = evolve(killed, '--resume', '--workers', '1');
  expect(resumed.stderr).not.toContain('tierkv:');
  expect(stateOf(killed)).toBe(stateOf('whole'));
  for (const name of [
    'best.json',
    'report.json',
    'comparison.csv',
    'lineage.jsonl',
    'fitness.svg',
    'archive.svg',
    'pareto.svg',
  ]) {
    const read = (out: string): string => fs.readFileSync(path.join(folder, out, name), 'utf8');
    expect(read(killed)).toBe(read('whole'));
  }
  expect(resumed.stdout).toBe(whole.stdout);
  expect(fs.readFileSync(path.join(folder, 'whole', 'report.json'), 'utf8')).toContain(own);
  readBundle(JSON.parse(fs.readFileSync(path.join(folder, 'whole', 'best.json'), 'utf8')));
  const lines = fs
    .readFileSync(path.join(folder, 'whole', 'lineage.jsonl'), 'utf8')
    .trim()
    .split('\n');
  expect(lines).toHaveLength((JSON.parse(stateOf('whole')) as SearchState).individuals.length);
}, 300_000);

it.each([
  [['--slots', 'routin'], /--slots is not known.*routing/],
  [['--population', '2'], /--population/],
  [['--resume'], /finds no state/],
  [['routing/lor', '--resume'], /policy comes with --resume/],
  [['routing/lorr'], /Did you mean routing.lor/],
  [['--plan', 'nothing'], /--plan is not known/],
  [
    ['--slots', 'routing,autoScale'],
    /--slots has autoScale, and the plan scales no instances.*--plan scaling/,
  ],
  [['autoScale/hpa'], /autoScale decides nothing where the plan scales no instances.*plan scaling/],
  [['--features', 'nonsense'], /--features is not known \("nonsense"\)\. .*policy_nodes/],
  [['--features', 'policy_nodes,load_vc'], /--features is not known \("load_vc"\)\. Did you mean load_cv\?/],
  [['--features', 'load_cv,,policy_nodes'], /--features is not known \(""\)/],
  [['--minutes', 'soon'], /--minutes/],
])('a mistake is one line and code 2: %j', async (more, message) => {
  const { status, stderr } = await endOf(['evolve', '--out', path.join(folder, 'none'), ...options, ...more]);
  expect(status).toBe(2);
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(stderr).toMatch(message);
});

it('a search is neither overwritten nor gone on with under another plan', () => {
  expect(evolve('whole').stderr).toMatch(/holds a search already.*--resume/);
  expect(evolve('whole', '--resume', '--seed', '9').stderr).toMatch(/seed is 9, and was 1/);
});

it('ends with a winner after the minutes that it is given, and says how it stands beside every preset', () => {
  const { status, stdout } = evolve('short', '--minutes', '0', '--workers', '1', '--no-plots');
  expect(status).toBe(0);
  expect(stdout).toMatch(/^No generation was run: .*\n0 generations/);
  const state = JSON.parse(stateOf('short')) as SearchState;
  const rows = fs
    .readFileSync(path.join(folder, 'short', 'comparison.csv'), 'utf8')
    .trim()
    .split('\n');
  expect(rows[0]).toBe('policy,all,small/roofline');
  // the winner is a preset itself, and is not in the list twice
  expect(rows).toHaveLength(1 + state.individuals.length);
  expect(rows[1]).toMatch(/^winner,/);
});

function lacksMatplotlib(): boolean {
  try {
    execFileSync('python3', ['-c', 'import matplotlib'], { stdio: 'ignore' });
    return false;
  } catch {
    console.warn('SKIPPED: matplotlib is not here for the example that plots a search');
    return true;
  }
}

it.skipIf(lacksMatplotlib())('the Python example draws what a search left', () => {
  const script = fileURLToPath(
    new URL('../../../python/tierkv_evolve/examples/plot_search.py', import.meta.url),
  );
  const picture = path.join(folder, 'search.png');
  execFileSync('python3', [script, path.join(folder, 'whole'), picture]);
  expect(fs.readFileSync(picture).subarray(1, 4).toString()).toBe('PNG');
});

it('two searches at once do not share a directory', async () => {
  const out = path.join(folder, 'shared');
  fs.mkdirSync(out);
  const lock = await DirectoryLock.acquire(out, undefined);
  const { status, stderr } = evolve('shared', '--no-plots');
  lock.release();
  expect(stderr).toMatch(/--out is \S+shared, and another search that runs has it\. .* \[TKV_LOCKED\]/);
  expect(status).not.toBe(0);
  expect(fs.readdirSync(out)).toEqual([]);
});
