/**
 * A search within a time, from none at all to more than it needs, on an evaluator whose every case takes a
 * second of a clock that the test moves.
 */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import type { Evaluation, Evaluator, SuiteName } from '../../../src/policy/evolve/fitness/evaluation.ts';
import { choose, finalistsOf, judge, type SearchPlan } from '../../../src/policy/evolve/search/breeding.ts';
import { SearchBudget, TimeIsUp } from '../../../src/policy/evolve/search/budget.ts';
import { contentKey } from '../../../src/policy/evolve/search/individual.ts';
import { Search } from '../../../src/policy/evolve/search/search.ts';
import { guides } from './analyticEvaluator.ts';

const plan: SearchPlan = {
  seed: 3,
  population: 8,
  slots: ['priority', 'routing'],
  islands: 2,
  migrateEvery: 4,
  features: ['policy_nodes'],
  bins: 4,
};

const presets: readonly PolicyBundle[] = Array.from({ length: 30 }, (_, level) => ({
  name: `preset ${level}`,
  priority: { type: 'parameterized', template: 'constant', parameters: { level: level / 3 } },
  routing: { type: 'parameterized', template: 'sum', parameters: { load: level / 10 } },
}));

const CASE_MS = 1000;
const SEEDS: Readonly<Record<SuiteName, number>> = { train: 16, validation: 12, hidden: 8 };

/** One thread, a second a case, each case of each bundle once; the baseline runs with whatever is asked. */
class SlowEvaluator implements Evaluator {
  readonly objectiveNames = ['gain'];
  cases = 0;
  readonly #done = new Map<string, Promise<boolean>>();
  #last: Promise<unknown> = Promise.resolve();

  caseIds(suite: SuiteName): readonly string[] {
    const settings = ['a/x', 'a/y', 'b/x', 'b/y'];
    return settings.flatMap((setting) =>
      Array.from({ length: SEEDS[suite] }, (_, seed) => `${setting}/${seed}`),
    );
  }

  async evaluate(
    bundles: readonly PolicyBundle[],
    suite: SuiteName,
    signal?: AbortSignal,
    cases: readonly string[] = this.caseIds(suite),
  ): Promise<readonly Evaluation[]> {
    const runs = [{ name: 'baseline' }, ...bundles].flatMap((bundle) =>
      cases.map((id) => this.#run(`${contentKey(bundle)} ${suite} ${id}`, signal)),
    );
    await Promise.all(runs);
    signal?.throwIfAborted();
    return bundles.map((bundle) => {
      const { priority } = bundle;
      const level = priority?.type === 'parameterized' ? Number(priority.parameters.level ?? 0) : 0;
      const score = -Math.abs(level - 7);
      return {
        policyId: contentKey(bundle),
        score,
        objectives: [score],
        metrics: { policy_nodes: 1 },
        cases: cases.map((id) => ({ id, score, objectives: [score], metrics: {} })),
      };
    });
  }

  async #run(key: string, signal: AbortSignal | undefined): Promise<void> {
    for (;;) {
      let running = this.#done.get(key);
      if (running === undefined) {
        running = this.#last.then(async () => {
          if (signal?.aborted === true) return false;
          await new Promise((resolve) => setTimeout(resolve, CASE_MS));
          this.cases++;
          return true;
        });
        this.#done.set(key, running);
        this.#last = running;
      }
      if (await running) return;
      this.#done.delete(key);
      if (signal?.aborted === true) return;
    }
  }
}

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

interface Ended {
  readonly tookMs: number;
  readonly presets: number;
  readonly judged: number;
  readonly generations: number;
  readonly cases: number;
}

async function searched(minutes: number, generations: number): Promise<Ended> {
  const began = performance.now();
  const budget = new SearchBudget(60_000 * minutes);
  const evaluator = new SlowEvaluator();
  const search = await Search.begin(plan, presets, evaluator, guides, undefined, budget);
  while (search.state.generation < generations && budget.leftMs('generations') > 0) {
    try {
      await budget.during('generations', (end) => search.step(end));
    } catch (error) {
      if (!(error instanceof TimeIsUp)) throw error;
    }
  }
  const known = search.state.individuals.filter(({ origin }) => origin === 'preset');
  const finalists = finalistsOf(search.ranking, 4, plan.slots);
  const { chosen } = await choose(finalists, known, evaluator, undefined, budget);
  const judged = await judge(chosen.individual, known, evaluator, undefined, budget);
  expect(judged[0].individual.id).toBe(chosen.individual.id);
  return {
    tookMs: performance.now() - began,
    presets: known.length,
    judged: judged.length,
    generations: search.state.generation,
    cases: evaluator.cases,
  };
}

/** Fake time goes on until it has ended. */
async function inFakeTime<T>(work: Promise<T>): Promise<T> {
  let isDone = false;
  void work.finally(() => {
    isDone = true;
  });
  while (!isDone) await vi.advanceTimersByTimeAsync(CASE_MS);
  return work;
}

/** One policy and the baseline on one seed of each of four settings, in three suites. */
const LEAST_CASES = 3 * 2 * 4;

it.each([0, 0.1, 1, 3, 10, 60, 600])('ends within %d minutes and a case, with a winner', async (minutes) => {
  const { tookMs, judged, presets: begun } = await inFakeTime(searched(minutes, 2));
  expect(tookMs).toBeLessThanOrEqual(60_000 * minutes + (LEAST_CASES + 1) * CASE_MS);
  expect(begun).toBeGreaterThanOrEqual(1);
  expect(judged).toBeGreaterThanOrEqual(1);
});

it('a budget of zero runs one policy on one seed of each setting of each suite', async () => {
  const { cases, generations, presets: begun } = await inFakeTime(searched(0, 2));
  expect(cases).toBeLessThanOrEqual(LEAST_CASES);
  expect(begun).toBe(1);
  expect(generations).toBe(0);
});

it('validation without time compares with a preset all the same', async () => {
  const evaluator = new SlowEvaluator();
  const search = await inFakeTime(Search.begin(plan, presets, evaluator, guides));
  // they gain -7 to -4
  const known = search.state.individuals.slice(0, 10);
  const none = new SearchBudget(0);
  const { chosen } = await inFakeTime(choose(known.slice(0, 1), known, evaluator, undefined, none));
  const leads = Object.values(chosen.leads);
  expect(leads).toHaveLength(4);
  for (const lead of leads) expect(lead).toBeCloseTo(-3, 9);
});

it('more time than is needed leaves nothing out', async () => {
  const { presets: begun, generations, judged } = await inFakeTime(searched(6000, 2));
  expect(begun).toBe(presets.length);
  expect(generations).toBe(2);
  expect(judged).toBeGreaterThanOrEqual(presets.length);
});

it('more time lets more policies in', async () => {
  const begun: number[] = [];
  for (const minutes of [0.5, 2, 8]) begun.push((await inFakeTime(searched(minutes, 1))).presets);
  expect(begun).toEqual(begun.toSorted((a, b) => a - b));
  expect(begun[2]).toBeGreaterThan(begun[0]);
});
