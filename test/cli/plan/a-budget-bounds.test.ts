/**
 * A budget bounds a plan: runs that have not ended when the time is over are called off, and what is known by then is the
 * answer, which names what was not tried.
 */

import { expect, it, vi } from 'vitest';
import type { TaskRunner } from '../../../src/io/workerPool.ts';
import { plan } from '../../../src/studies/plan/plan.ts';
import type { PlanQuestion } from '../../../src/studies/plan/question.ts';
import { checkQuestion } from '../../../src/studies/plan/question.ts';
import { PlanSearch, type TimeLeft } from '../../../src/studies/plan/search.ts';
import type { TrialTasks } from '../../../src/studies/plan/trial.ts';
import { runTrial, type TrialTask } from '../../../src/studies/plan/trial.ts';
import { Trials } from '../../../src/studies/plan/trials.ts';

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

/** A runner that answers the runs that it takes, and never the others. */
function answering(takes: (task: TrialTask, number: number) => boolean): TaskRunner<TrialTasks> {
  let count = 0;
  const run = async (_kind: string, make: () => unknown): Promise<unknown> => {
    const task = make() as TrialTask;
    return takes(task, count++) ? runTrial(task) : new Promise(() => {});
  };
  return { run, close: async () => {} } as unknown as TaskRunner<TrialTasks>;
}

const stuckAfter = (ended: number): TaskRunner<TrialTasks> => answering((_, number) => number < ended);

/** A search whose time is what the test says it is. */
function searchWithin(question: PlanQuestion, runner: TaskRunner<TrialTasks>, timeLeft: TimeLeft) {
  return new PlanSearch(new Trials(checkQuestion(question), runner, () => {}), timeLeft, () => {}).run();
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

it('machines that the time for bounds did not reach are named, and the first that holds the model is looked at', async () => {
  const many: PlanQuestion = { ...question, gpus: ['H100', 'H200'], tensorParallel: [1, 2, 4] };
  const found = await searchWithin(many, stuckAfter(0), () => 0);
  expect(found.traffic?.isWhole).toBe(false);
  expect(found.traffic?.prompts.count).toBe(64);
  expect(found.requests).toBe(64);
  expect(found.unseen).toEqual(['2 H100', '4 H100', '1 H200', '2 H200', '4 H200']);
  expect(found.isWhole).toBe(false);
  let nowMs = 0;
  using _clock = vi.spyOn(performance, 'now').mockImplementation(() => (nowMs += 60_000));
  const answer = await plan(many, { runner: stuckAfter(0) });
  expect(answer.effort.isWhole).toBe(false);
  expect(answer.notes.join('\n')).toMatch(/no time to look at instances of 2 H100, 4 H100, 1 H200/);
  expect(answer.notes.join('\n')).toMatch(/time to read 64 requests of the workload/);
});

it('where no run of the usual length ends, runs of the least length take their place', async () => {
  const long: PlanQuestion = { ...question, workload: { ...question.workload, requests: 3000 } };
  const lengths: (number | undefined)[] = [];
  const runner = answering(({ plan: planned }) => {
    const { 'workload.requests': requests } = planned.deployment.values;
    lengths.push(requests);
    return requests !== 1000;
  });
  // the time of short runs is over once the first round was asked for, and what comes behind them has enough
  let asked = 0;
  const found = await searchWithin(long, runner, (share) => (share === 0.55 && asked++ > 0 ? 0 : 1e6));
  expect(lengths.slice(0, 2)).toEqual([1000, 1000]);
  expect(found.best ?? found.closest).toBeDefined();
  expect(lengths).toContain(300);
  expect(found.isWhole).toBe(false);
});

it('a model that no machine holds, and machines larger than may be used, are an answer', async () => {
  const none = await plan({ ...question, model: 'deepseek-v3', gpus: ['rtx-4090'], tensorParallel: [1, 16] });
  expect(none.choice ?? none.closest).toBeUndefined();
  expect(none.effort).toMatchObject({ simulations: 0, isWhole: true });
  expect(none.excluded.map(({ reason }) => reason)).toEqual([
    expect.stringMatching(/^deployment\.yaml:\d+: deepseek-v3 needs .* GiB on each GPU .*models\[0\]\.tp/),
    'it has 16 GPUs, and a deployment may have 8',
  ]);
});
