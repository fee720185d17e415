/**
 * A budget bounds a plan: runs that have not ended when the time is over are called off, and what is known by then is the
 * answer, which names what was not tried.
 */

import { expect, it } from 'vitest';
import type { TaskRunner } from '../../../src/io/workerPool.ts';
import { type PlanQuestion, plan } from '../../../src/studies/plan/index.ts';
import type { TrialTasks } from '../../../src/studies/plan/trial.ts';
import { runTrial, type TrialTask } from '../../../src/studies/plan/trial.ts';

const question: PlanQuestion = {
  model: 'qwen/qwen3-14b',
  targets: { ttft_p99: 1000 },
  workload: { preset: 'chatbot', rate: 20, requests: 900 },
  gpus: ['H100'],
  tensorParallel: [1, 2],
  maxGpus: 8,
  roles: ['shared'],
  budgetS: 8,
};

/** A runner that ends the first `ended` runs and never answers the others. */
function stuckAfter(ended: number): TaskRunner<TrialTasks> {
  let count = 0;
  const run = async (_kind: string, make: () => unknown): Promise<unknown> => {
    if (count++ >= ended) return new Promise(() => {});
    return runTrial(make() as TrialTask);
  };
  return { run, close: async () => {} } as unknown as TaskRunner<TrialTasks>;
}

it('where no run ended the answer has no choice, and says so', async () => {
  const answer = await plan(question, { runner: stuckAfter(0) });
  expect(answer.choice).toBeUndefined();
  expect(answer.closest).toBeUndefined();
  expect(answer.effort).toMatchObject({ simulations: 0, isWhole: false });
  expect(answer.notes.join('\n')).toMatch(/2 runs were called off: of .*H100/);
});

it('what met the targets by then is the answer, with what was not tried', async () => {
  const answer = await plan(question, { runner: stuckAfter(2) });
  expect(answer.choice?.meets).toBe(true);
  expect(answer.effort.isWhole).toBe(false);
  expect(answer.effort.simulations).toBe(2);
  expect(answer.effort.requestsEach).toBe(300);
  expect(answer.notes.join('\n')).toMatch(
    /no time for a full run: the answer is by 300 requests instead of 900/,
  );
  const untried = answer.checks.filter((check) => check.untried !== undefined);
  expect(untried).toHaveLength(answer.checks.length);
  expect(answer.simulateWords).toContain('--num-requests 300');
});
