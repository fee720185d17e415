/**
 * `tierkv plan` names the cheapest deployment, which an exhaustive search over the same machines finds too; the command and
 * the file that it prints give the figures that it prints, and meet the targets on seeds that it never saw.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TaskRunner } from '../../../src/io/workerPool.ts';
import { WorkerPool } from '../../../src/io/workerPool.ts';
import { planSimulation } from '../../../src/sim/build/plan.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';
import type { DeploymentChoice } from '../../../src/studies/plan/choice.ts';
import { deploymentFile, gpusOf, simulateWords } from '../../../src/studies/plan/choice.ts';
import { type PlanAnswer, plan, simulateCommandOf } from '../../../src/studies/plan/plan.ts';
import type { PlanQuestion } from '../../../src/studies/plan/question.ts';
import { checkQuestion } from '../../../src/studies/plan/question.ts';
import { PlanSearch } from '../../../src/studies/plan/search.ts';
import type { TrialTasks } from '../../../src/studies/plan/trial.ts';
import { runTrial, type TrialTask } from '../../../src/studies/plan/trial.ts';
import { Trials } from '../../../src/studies/plan/trials.ts';
import { main } from '../../command.ts';
import { resultProblems } from '../../resultSchema.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-plan-test-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs trials in this thread: what they give is the same. */
const here: TaskRunner<TrialTasks> = {
  run: async (_kind, make) => runTrial(make() as TrialTask) as never,
  close: async () => {},
};

const question: PlanQuestion = {
  model: 'qwen3-14b',
  workload: { preset: 'chatbot', rate: 60, requests: 200 },
  targets: { ttft_p99: 150, itl_p99: 30 },
  tensorParallel: [1, 2],
  maxGpus: 4,
  seeds: 2,
  budgetS: 3600, // however busy the machine is
};

/** Metrics of `tierkv simulate` with the words of a command line. */
function simulated(command: string, ...more: string[]): Record<string, number> {
  const file = join(folder, 'metrics.json');
  const words = command.replace(/^tierkv simulate /, '').split(' ');
  const args = [main, 'simulate', ...words, ...more, '--metrics-path', file];
  execFileSync(process.execPath, args, { stdio: 'ignore' });
  return JSON.parse(readFileSync(file, 'utf8'));
}

describe('a plan', () => {
  let answer: PlanAnswer;
  beforeAll(async () => {
    answer = await plan(question, { runner: here });
  });

  it('has the shape that --json promises', () => {
    const text = (result: object): string =>
      JSON.stringify({ schema: 'tierkv.result/1', command: 'plan', tierkv: '0.1.0', result });
    expect(resultProblems(text(answer))).toEqual([]);
    expect(resultProblems(text({ ...answer, effort: {} }))).not.toEqual([]);
  });

  it('names the deployment that trying all finds', async () => {
    const checked = checkQuestion(question);
    const trials = new Trials(checked, here, () => {});
    trials.isSteady = true;
    const { deployment } = answer.choice ?? expect.fail('none was found');
    const all: DeploymentChoice[] = [1, 2].flatMap((tensorParallel) =>
      [1, 2, 3].map((instances) => ({
        ...deployment,
        tensorParallel,
        instances,
        prefillInstances: 0,
      })),
    );
    const fitting = all.filter((choice) => gpusOf(choice) < gpusOf(deployment));
    expect(fitting.length).toBeGreaterThan(0);
    const cheaper = await trials.run(
      fitting.map((choice) => ({ choice, requests: 200, seed: checked.seed })),
      () => 1e9,
    );
    expect(cheaper.filter((one) => one?.meets !== false).map((one) => one?.trial.choice)).toEqual([]);
    expect(answer.choice?.meets).toBe(true);
    expect(answer.effort.isWhole).toBe(true);
  });

  it('prints the command that gives its figures, and meets the targets on other seeds', () => {
    const command = simulateCommandOf(answer) ?? expect.fail('no command');
    const same = simulated(command);
    expect(same.ttft_p99_ms).toBe(answer.choice?.run.figures.ttft_p99);
    expect(same.itl_p99_ms).toBe(answer.choice?.run.figures.itl_p99);
    const other = simulated(command, '--seed', '1234567');
    expect(other.ttft_p99_ms).not.toBe(same.ttft_p99_ms);
    expect(other.ttft_p99_ms).toBeLessThanOrEqual(150);
    expect(other.itl_p99_ms).toBeLessThanOrEqual(30);
  });

  it('writes a deployment that gives the same figures', () => {
    const file = join(folder, 'deployment.yaml');
    writeFileSync(file, String(answer.deploymentFile));
    const same = simulated(String(simulateCommandOf(answer, file)));
    expect(same.ttft_p99_ms).toBe(answer.choice?.run.figures.ttft_p99);
    expect(same.completed_requests).toBe(200);
  });

  it.each([
    { instances: 2, prefillInstances: 0, routing: 'least-loaded' },
    { instances: 3, prefillInstances: 0, routing: 'prefix-and-load' },
    { instances: 4, prefillInstances: 2, routing: 'least-loaded' },
    { tensorParallel: 2, instances: 1, prefillInstances: 0, routing: 'least-loaded', ddrGib: 8, nvmeGib: 64 },
  ] as const)('runs the same by its file and by its command: %o', (changes) => {
    const choice = { ...(answer.choice ?? expect.fail('none was found')).deployment, ...changes };
    const checked = checkQuestion({ ...question, ddrClass: 's3', nvmeGbps: 0.5 });
    const file = join(folder, 'same.yaml');
    const time = { name: 'calibrated' } as const;
    const figures = [42, 43].map((seed) => {
      const setting = { seed, requests: 200 };
      writeFileSync(file, deploymentFile(choice, checked, setting, time));
      const [byFile, byCommand] = [file, undefined].map((at) => {
        const words = simulateWords(choice, checked, setting, time, at);
        return runTrial({ plan: planSimulation(askedBy(readWords(words.split(' '))).deployment) });
      });
      expect(byCommand).toEqual(byFile);
      return byFile;
    });
    expect(figures[0]).toMatchObject({ completed: 200 });
    expect(figures[1]).not.toEqual(figures[0]);
  });

  it('says how sure it is, and what gives next', () => {
    const changes = answer.checks.map(({ change }) => change);
    expect(changes).toEqual([
      'seed 43',
      'seed 44',
      '10 % more requests',
      'time by trained-physics',
      'time by roofline',
    ]);
    expect(answer.checks.slice(0, 2).every(({ meets }) => meets)).toBe(true);
    expect(answer.next?.failsAt).toBeGreaterThan(answer.next?.meetsAt ?? Infinity);
    expect(answer.cheaper.length).toBeGreaterThan(0);
    expect(answer.cheaper.every(({ meets }) => !meets)).toBe(true);
  });

  it('is the same by threads', async () => {
    const pool = new WorkerPool<TrialTasks>({ workers: 2, wallMs: Infinity });
    try {
      const workload = { preset: 'chatbot', rate: 60, requests: 100 };
      const small = { ...question, workload, maxGpus: 2, tensorParallel: [1], seeds: 0 };
      expect(await plan(small, { runner: pool })).toEqual(await plan(small, { runner: here }));
    } finally {
      await pool.close();
    }
  });

  it('says by how much the closest fails where none meets the targets', async () => {
    const none = await plan({ ...question, targets: { ttft_p99: 18 }, seeds: 0 }, { runner: here });
    expect(none.choice).toBeUndefined();
    const [ttft] = none.closest?.targets ?? [];
    expect(ttft).toMatchObject({ figure: 'ttft_p99', boundMs: 18, meets: false });
    expect(ttft.ms).toBeGreaterThan(18);
    expect(simulateCommandOf(none)).toContain('--model qwen3-14b');
  });

  it('excludes by bounds only what fails when it is run', async () => {
    const tight = { ...question, targets: { itl_p99: 5 }, maxGpus: 2 };
    const none = await plan(tight, { runner: here });
    const excluded = none.excluded.filter(({ reason }) => reason.includes('alone'));
    expect(excluded.length).toBeGreaterThan(0);
    const trials = new Trials(checkQuestion(tight), here, () => {});
    for (const { gpu, tensorParallel } of excluded) {
      const choice = {
        ...(answer.choice ?? expect.fail('none was found')).deployment,
        gpu,
        tensorParallel,
        prefillInstances: 0,
      };
      const instances = Math.floor(2 / tensorParallel);
      const [alone] = await trials.run(
        [{ choice: { ...choice, instances }, requests: 100, seed: 1 }],
        () => 1e9,
      );
      expect(alone?.meets).toBe(false);
    }
  });

  it('stops at the end of its time, and says so', async () => {
    const trials = new Trials(checkQuestion(question), here, () => {});
    const found = await new PlanSearch(
      trials,
      () => 0,
      () => {},
    ).run();
    expect(found.isWhole).toBe(false);
    expect(trials.count).toBe(0);
  });
});
