/**
 * What a plan says rests on runs that were made of the traffic that was asked for: conversations come to their rate before a run is
 * judged, what fails a short run by little is run whole, and nothing is run where bounds prove that no machine can do it.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { answerText } from '../../../src/cli/plan/report.ts';
import type { TaskRunner } from '../../../src/io/workerPool.ts';
import { planReport } from '../../../src/observe/report/planReport.ts';
import { decidingTarget, type PlanAnswer, plan, shownOptions } from '../../../src/studies/plan/plan.ts';
import type { PlanQuestion } from '../../../src/studies/plan/question.ts';
import { figureNames } from '../../../src/studies/plan/targets.ts';
import {
  runTrial,
  type TrialResult,
  type TrialTask,
  type TrialTasks,
} from '../../../src/studies/plan/trial.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-plan-right-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs trials in this thread, or answers by a rule. */
function runner(answer: (task: TrialTask) => unknown = runTrial): TaskRunner<TrialTasks> {
  return { run: async (_kind, make) => answer(make() as TrialTask) as never, close: async () => {} };
}

/** A trial's result by what the deployment is and how many requests it serves. */
function ruled(ttftMs: (instances: number, requests: number, isSplit: boolean) => number) {
  const asked: { instances: number; requests: number; seed: number; isSplit: boolean }[] = [];
  const answer = ({ plan: planned }: TrialTask): TrialResult => {
    const { pools, deployment } = planned;
    const instances = pools.reduce((sum, { replicas }) => sum + replicas, 0);
    const requests = Number(deployment.values['workload.requests']);
    const isSplit = pools.length > 1;
    asked.push({ instances, requests, seed: Number(deployment.values.seed), isSplit });
    const figures = Object.fromEntries(
      figureNames.map((name) => [name, ttftMs(instances, requests, isSplit)]),
    );
    return {
      ...{ injected: requests, completed: requests, unservable: 0, arrivalsPerS: 20 },
      figures: figures as TrialResult['figures'],
      ...{ requestsPerS: 20, outputTokensPerS: 1, delayP99Ms: 0, hitRate: 0, hitsByTier: {} },
      ...{ preemptions: 0, busyShare: 0.5, kvShare: 0.5, inFlightHalf: 1, inFlightEnd: 1 },
    };
  };
  return { runner: runner(answer), asked };
}

const question: PlanQuestion = {
  model: 'qwen3-14b',
  targets: { ttft_p99: 100 },
  workload: { preset: 'chatbot', rate: 20, requests: 900 },
  gpus: ['H100'],
  tensorParallel: [1],
  maxGpus: 8,
  seeds: 1,
  budgetS: 3600,
};

const texts = ({ choice, cheaper }: PlanAnswer): string[] =>
  [choice, ...cheaper].map((one) => `${one?.text}: ${one?.restsOn}`);

describe('what failed a short run', () => {
  it('by less than a quarter is run whole before a dearer deployment is called the cheapest', async () => {
    // two instances miss by a fifth in the short run alone
    const { runner: rule, asked } = ruled((instances, requests) =>
      instances > 2 ? 50 : instances < 2 ? 900 : requests < 900 ? 120 : 90,
    );
    const answer = await plan({ ...question, roles: ['shared'] }, { runner: rule });
    expect(answer.choice?.deployment.instances).toBe(2);
    expect(answer.choice?.restsOn).toBe('whole run');
    expect(asked.filter(({ instances, requests }) => instances === 2 && requests === 900)).not.toEqual([]);
    // and by more than that rests on the short run
    expect(asked.filter(({ instances, requests }) => instances === 1 && requests === 900)).toEqual([]);
    expect(texts(answer)).toContain('1 instance x 1 H100: short run');
  });

  it('by little is run whole before it is said that none meets the targets', async () => {
    const { runner: rule } = ruled((instances, requests) => (instances === 8 && requests === 900 ? 99 : 124));
    const answer = await plan({ ...question, roles: ['shared'] }, { runner: rule });
    expect(answer.choice?.deployment.instances).toBe(8);
    const { runner: never, asked } = ruled(() => 124);
    const none = await plan({ ...question, roles: ['shared'] }, { runner: never });
    expect(none.choice).toBeUndefined();
    expect(none.closest?.restsOn).toBe('whole run');
    expect(asked.some(({ requests }) => requests === 900)).toBe(true);
  });
});

it('the way to share the work that was beaten is shown, whichever it is', async () => {
  const shared = await plan(question, { runner: ruled((instances) => (instances > 1 ? 50 : 500)).runner });
  expect(shared.choice?.deployment.prefillInstances).toBe(0);
  expect(shared.beaten?.deployment.prefillInstances).toBe(1);
  expect(answerText(shared, undefined)).toMatch(/1 prefill \+ 1 decode .*\n/);
  const split = await plan(question, {
    runner: ruled((instances, _, isSplit) => (isSplit ? 50 : instances > 3 ? 50 : 500)).runner,
  });
  expect(split.choice?.deployment.prefillInstances).toBeGreaterThan(0);
  expect(split.beaten?.deployment.prefillInstances).toBe(0);
  expect(shownOptions(split).map(({ text }) => text)).toContain(split.beaten?.text);
  const alone = await plan({ ...question, roles: ['shared'] }, { runner: ruled(() => 50).runner });
  expect(alone.beaten).toBeUndefined();
});

it('where prefill and decode apart are asked for alone, nothing else is named', async () => {
  const { runner: rule, asked } = ruled(() => 50);
  const answer = await plan({ ...question, roles: ['split'] }, { runner: rule });
  expect(answer.choice?.deployment.prefillInstances).toBe(1);
  expect(asked.filter(({ isSplit }) => !isSplit)).toEqual([]);
});

it('the chart shows the target that decides', async () => {
  const targets = { e2e_p99: 60_000, ttft_p99: 100 };
  const answer = await plan(
    { ...question, targets },
    { runner: ruled((instances) => 120 / instances).runner },
  );
  expect(answer.choice && decidingTarget(answer.choice).figure).toBe('ttft_p99');
  const { sections } = planReport(answer, 'tierkv plan');
  const chart = sections.find((section) => section.kind === 'points');
  expect(chart).toMatchObject({ y: { title: expect.stringMatching(/TTFT|first token/i) } });
});

it('bounds that leave no machine end the search without a run', async () => {
  const answer = await plan(
    { ...question, targets: { ttft_p99: 0.5 } },
    { runner: runner(() => expect.fail('it runs')) },
  );
  expect(answer.effort).toMatchObject({ simulations: 0, isWhole: true });
  expect(answer.excluded).toMatchObject([{ why: 'too slow' }]);
  expect(answerText(answer, undefined)).toMatch(
    /^No deployment meets the targets\.\nBounds that need no run leave out each/,
  );
});

it('a model that fits no machine ends in that sentence', async () => {
  const none = await plan({ ...question, model: 'deepseek-v3', gpus: ['rtx-4090'] }, { runner: runner() });
  expect(answerText(none, undefined)).toMatch(
    /^No deployment meets the targets\.\nNo machine holds the model\./,
  );
  expect(planReport(none, 'tierkv plan').answer).toBe('None: no machine holds the model.');
});

it('a recorded trace is not run again under seeds that change nothing', async () => {
  const file = join(folder, 'trace.csv');
  const rows = Array.from({ length: 300 }, (_, i) => `2023-11-16 18:17:${(10 + i / 20).toFixed(6)},200,20`);
  writeFileSync(file, `TIMESTAMP,ContextTokens,GeneratedTokens\n${rows.join('\n')}\n`);
  const { runner: rule, asked } = ruled(() => 50);
  const answer = await plan({ ...question, workload: { file }, seeds: 3 }, { runner: rule });
  expect(answer.checks.filter(({ change }) => change.startsWith('seed'))).toEqual([]);
  expect(new Set(asked.map(({ seed }) => seed)).size).toBe(1);
  expect(answer.notes.join('\n')).toMatch(/one course of events, so that it was not run under further seeds/);
});

describe('conversations', () => {
  const chat: PlanQuestion = {
    ...question,
    targets: { ttft_p99: 500 },
    workload: { preset: 'chat', rate: 1, requests: 800 },
    maxGpus: 1,
    roles: ['shared'],
    seeds: 0,
  };

  it('are judged at the rate that was asked for', async () => {
    const tasks: TrialTask[] = [];
    const answer = await plan(
      { ...chat, latencyModel: 'roofline' },
      {
        runner: runner((task) => {
          tasks.push(task);
          return runTrial(task);
        }),
      },
    );
    const { run, meets } = answer.choice ?? expect.fail('none');
    expect(meets).toBe(true);
    expect(run.arrivalsPerS).toBeGreaterThan(0.9);
    expect(run.arrivalsPerS).toBeLessThan(1.1);
    expect(run.requestsPerS).toBeGreaterThan(0.9);
    expect(tasks.every(({ judged }) => judged !== undefined && judged.toUs > judged.fromUs)).toBe(true);
    expect(answer.notes.join('\n')).toMatch(/of the requests that came from 662 s on/);
  });

  it('of which too few are asked for leave the answer unknown, and nothing is run', async () => {
    const short = { ...chat, workload: { preset: 'chat', rate: 20, requests: 1000 } };
    const answer = await plan(short, { runner: runner(() => expect.fail('it runs')) });
    expect(answer.choice).toBeUndefined();
    expect(answer.closest).toBeUndefined();
    expect(answer.unknown).toMatch(
      /^1000 requests do not come to 20 a second: .*Give --num-requests 7230 or more/,
    );
    expect(answerText(answer, undefined)).toMatch(/^Not known: 1000 requests/);
    expect(planReport(answer, 'tierkv plan').verdict).toBe('open');
  });

  it('that a deployment holds up miss their targets, however fast its answers are', async () => {
    const { runner: rule } = ruled(() => 10);
    const slow: TaskRunner<TrialTasks> = {
      ...rule,
      run: async (kind, make, ...rest) =>
        ({ ...((await rule.run(kind, make, ...rest)) as object), arrivalsPerS: 0.7 }) as never,
    };
    const answer = await plan(chat, { runner: slow });
    expect(answer.choice).toBeUndefined();
    expect(answer.closest?.meets).toBe(false);
  });
});

describe('sizes of tiers that are named', () => {
  const sized: PlanQuestion = {
    ...question,
    workload: { preset: 'chat', rate: 1, requests: 800 },
    prices: { H100: 2 },
    ddrPrice: 0.01,
    ddrGib: [64, 128],
    nvmeGib: [0, 1024],
    nvmeClass: 'sata_ssd',
    ddrGbps: 7,
    roles: ['shared'],
    maxGpus: 2,
  };

  it('are compared on the choice, with nothing else changed, beside what they cost', async () => {
    const { runner: rule } = ruled(() => 50);
    const answer = await plan(sized, { runner: reaching(rule) });
    expect(answer.bySize.map(({ deployment }) => [deployment.ddrGib, deployment.nvmeGib])).toEqual([
      [64, 0],
      [64, 1024],
      [128, 0],
      [128, 1024],
    ]);
    expect(answer.bySize.map(({ usdPerHour }) => usdPerHour?.toFixed(2))).toEqual([
      '2.64',
      '2.64',
      '3.28',
      '3.28',
    ]);
    for (const { deployment, restsOn } of answer.bySize) {
      expect({ ...deployment, ddrGib: 0, nvmeGib: 0 }).toEqual({ ...answer.choice?.deployment });
      expect(restsOn).toBe('whole run');
    }
    expect(answerText(answer, undefined)).toMatch(
      /what each size brings:\n.*\n.*DDR.*NVMe.*blocks found.*USD\/h/,
    );
    const { sections } = planReport(answer, 'tierkv plan');
    expect(sections.map(({ title }) => title)).toContain('Sizes of tiers');
    const unnamed = await plan({ ...sized, ddrGib: undefined, nvmeGib: undefined } as never, {
      runner: reaching(rule),
    });
    expect(unnamed.bySize).toEqual([]);
  });

  it('lie on the devices that are named', async () => {
    const links: object[] = [];
    const { runner: rule } = ruled(() => 50);
    await plan(sized, {
      runner: reaching(rule, ({ plan: planned }) => {
        const [{ engine }] = planned.pools;
        if (engine.lowerTiers.length === 2 && engine.loads.kind === 'deferred')
          links.push(engine.loads.links);
      }),
    });
    expect(links).not.toEqual([]);
    const sata = { baseLatencyUs: 150 };
    for (const each of links) {
      expect(each).toMatchObject({
        hbmToDdr: { baseLatencyUs: 10, bandwidthBytesPerS: 7e9 },
        ddrToHbm: { baseLatencyUs: 10, bandwidthBytesPerS: 7e9 },
        ddrToNvme: { ...sata, bandwidthBytesPerS: 500e6 },
        nvmeToHbm: { ...sata, bandwidthBytesPerS: 550e6 },
      });
    }
  });

  it('on a device that is not known are refused with the names of the known', async () => {
    const wrong = { ...sized, nvmeClass: 'nvme_gen5' };
    await expect(plan(wrong, { runner: runner() })).rejects.toThrow(/nvmeClass.*nvme_gen4/s);
    await expect(plan({ ...sized, ddrGbps: 0 }, { runner: runner() })).rejects.toThrow(/ddrGbps is 0/);
  });
});

/** The same runner, with as many requests a second as are asked for. */
function reaching(
  rule: TaskRunner<TrialTasks>,
  look: (task: TrialTask) => void = () => {},
): TaskRunner<TrialTasks> {
  return {
    ...rule,
    run: async (kind, make, ...rest) => {
      const task = make() as TrialTask;
      look(task);
      const { load = 1 } = task.plan.workload;
      return { ...((await rule.run(kind, () => task, ...rest)) as object), arrivalsPerS: load } as never;
    },
  };
}
