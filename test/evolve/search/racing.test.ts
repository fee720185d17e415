/** Leads over the best preset of each setting, races over more and more seeds, and crossings of presets. */

import { expect, it } from 'vitest';
import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import type { Evaluation, Evaluator, SuiteName } from '../../../src/policy/evolve/fitness/evaluation.ts';
import { FAILED_SCORE } from '../../../src/policy/evolve/fitness/objectives.ts';
import { type Individual, individualOf } from '../../../src/policy/evolve/search/individual.ts';
import {
  barsOf,
  behaviourOf,
  race,
  rungsOf,
  rungsWithBars,
  standingOf,
} from '../../../src/policy/evolve/search/racing.ts';
import { crossings, presetsInContext } from '../../../src/policy/evolve/search/seeds.ts';

const cases = ['a/roofline', 'b/roofline'].flatMap((setting) =>
  Array.from({ length: 8 }, (_, seed) => `${setting}/${seed}`),
);

const named = (name: string): PolicyBundle => ({ name });

function evaluationOf(score: (id: string) => number, ids: readonly string[] = cases): Evaluation {
  const results = ids.map((id) => ({ id, score: score(id), objectives: [score(id)], metrics: {} }));
  const mean = results.reduce((sum, each) => sum + each.score, 0) / ids.length;
  return { policyId: '', score: mean, objectives: [mean], metrics: {}, cases: results };
}

const failed: Evaluation = {
  policyId: '',
  score: FAILED_SCORE,
  objectives: [0],
  metrics: {},
  error: { kind: 'contract', message: 'broken' },
};

/** Scores by the name of the bundle, and how many cases each was asked for in all. */
class Named implements Evaluator {
  readonly objectiveNames: readonly string[] = ['score'];
  readonly asked = new Map<string, number>();
  readonly #score: (name: string, id: string) => number | undefined;

  constructor(score: (name: string, id: string) => number | undefined) {
    this.#score = score;
  }

  caseIds(): readonly string[] {
    return cases;
  }

  async evaluate(
    bundles: readonly PolicyBundle[],
    _suite: SuiteName,
    _signal?: AbortSignal,
    ids: readonly string[] = cases,
  ): Promise<readonly Evaluation[]> {
    return bundles.map(({ name = '' }) => {
      this.asked.set(name, ids.length);
      if (this.#score(name, ids[0]) === undefined) return failed;
      return evaluationOf((id) => this.#score(name, id) ?? 0, ids);
    });
  }
}

const noneKnown: ReadonlySet<string> = new Set();
const rungs = rungsOf(cases).map((ids) => ({ cases: ids, bars: { 'a/roofline': 0, 'b/roofline': 0 } }));

it('rungs halve the seeds of every setting down to two', () => {
  expect(rungs.map((rung) => rung.cases.length)).toEqual([4, 8, 16]);
  expect(rungs[0].cases).toEqual(['a/roofline/0', 'a/roofline/1', 'b/roofline/0', 'b/roofline/1']);
  expect(rungsOf(['a/roofline/1', 'a/roofline/2', 'a/roofline/3'])).toHaveLength(1);
});

it('the bar of a setting is the best preset there, and no preset has a lead', () => {
  const one = (id: string): number => (id.startsWith('a') ? 0.3 : 0);
  const two = (id: string): number => (id.startsWith('a') ? 0 : 0.2);
  const scores = [one, two].map((of) => Object.fromEntries(cases.map((id) => [id, of(id)])));
  const bars = barsOf(scores, cases);
  expect(bars['a/roofline']).toBeCloseTo(0.3, 12);
  expect(bars['b/roofline']).toBeCloseTo(0.2, 12);
  for (const lead of [one, two]) expect(standingOf(evaluationOf(lead), bars).score).toBeLessThan(0);
  // ahead in one setting by much, behind in the other by little: three quarters go by the smaller lead
  const { score, leads } = standingOf(
    evaluationOf((id) => (id.startsWith('a') ? 0.5 : 0.1)),
    bars,
  );
  expect(leads['a/roofline']).toBeCloseTo(0.2, 12);
  expect(leads['b/roofline']).toBeCloseTo(-0.1, 12);
  expect(score).toBeCloseTo(0.75 * -0.1 + 0.25 * 0.05, 12);
  expect(standingOf(failed, bars)).toEqual({ score: FAILED_SCORE, leads: {}, cases: 0 });
});

it('the bar on a few seeds is the score there of the preset that is best over all seeds', () => {
  const some = rungs[0].cases;
  // the lucky one is best on the first seeds of every setting, and worst over all
  const lucky = (id: string): number => (some.includes(id) ? 0.9 : -0.9);
  const steady = (id: string): number => (some.includes(id) ? 0.1 : 0.2);
  const scores = [lucky, steady].map((of) => Object.fromEntries(cases.map((id) => [id, of(id)])));
  const [first, , last] = rungsWithBars(
    rungs.map((rung) => rung.cases),
    scores,
  );
  expect(first.cases).toEqual(some);
  expect(first.bars['a/roofline']).toBeCloseTo(0.1, 12);
  expect(last.bars['a/roofline']).toBeCloseTo(0.175, 12);
});

it('a race goes on with the better third, and a stopped candidate stands below all that went on', async () => {
  // the lucky one is best on the first two seeds and worst on the others
  const score = (name: string, id: string): number =>
    name === 'lucky' ? (Number(id.split('/')[2]) < 2 ? 1 : -1) : Number(name) / 100;
  const evaluator = new Named(score);
  const names = ['5', '1', 'lucky', '8', '3', '9', '2', '7', '4'];
  const raced = await race(names.map(named), rungs, evaluator, noneKnown);
  expect(raced.map((each) => each.cases)).toEqual([4, 4, 8, 16, 4, 16, 4, 4, 4]);
  expect([...evaluator.asked.values()]).toEqual([4, 4, 8, 16, 4, 16, 4, 4, 4]);
  const order = names.map((name, i) => ({ name, ...raced[i] })).sort((a, b) => b.score - a.score);
  expect(order.map(({ name }) => name)).toEqual(['9', '8', 'lucky', '7', '5', '4', '3', '2', '1']);
  expect(order[0].score).toBeCloseTo(0.09, 12);
});

it('candidates that fail end the race for themselves only', async () => {
  const evaluator = new Named((name) => (name === 'broken' ? undefined : 0.1));
  const raced = await race([named('broken'), named('whole')], rungs, evaluator, noneKnown);
  expect(raced[0]).toMatchObject({ score: FAILED_SCORE, cases: 0 });
  expect(raced[1]).toMatchObject({ cases: 16 });
  expect(await race([], rungs, evaluator, noneKnown)).toEqual([]);
  const all = await race([named('broken'), named('broken')], rungs, evaluator, noneKnown);
  expect(all.every(({ evaluation }) => evaluation.error !== undefined)).toBe(true);
});

it('one that decides as a known one does, or as another in the race, goes no further', async () => {
  const score = (name: string): number => (name.startsWith('same') ? 0.5 : Number(name) / 100);
  const evaluator = new Named(score);
  const known = behaviourOf(evaluationOf(() => 0.07, rungs[0].cases));
  const names = ['same-1', 'same-2', '7', '8'];
  const raced = await race(names.map(named), rungs, evaluator, new Set([known]));
  expect(raced.map(({ isEcho }) => isEcho)).toEqual([false, true, true, false]);
  expect(raced.map((each) => each.cases)).toEqual([16, 4, 4, 16]);
  expect(raced[1].behaviour).toBe(raced[0].behaviour);
  expect(raced[2].behaviour).toBe(known);
  expect(behaviourOf(failed)).toBe('');
});

const spec = (template: string) => ({ type: 'parameterized', template, parameters: {} }) as const;

function preset(
  routing: string,
  priority: string,
  a: number,
  b: number,
  behaviour: string = `${routing}-${priority}`,
): Individual {
  const instanceScheduler = priority === 'urgent' ? { instanceScheduler: spec('by-rank') } : {};
  const bundle = { routing: spec(routing), priority: spec(priority), ...instanceScheduler };
  return individualOf(
    { bundle, origin: 'preset', parents: [], changes: [] },
    0,
    { ...evaluationOf(() => 0), policyId: `${routing}-${priority}` },
    { score: Math.min(a, b), leads: { a, b }, cases: 16, behaviour },
  );
}

it('crossings join the best of each slot, once each, with the best parts first', () => {
  const presets = [
    preset('usual', 'usual', -0.2, -0.2),
    preset('good', 'usual', -0.1, -0.1),
    preset('special', 'usual', -0.9, 0),
    preset('bad', 'usual', -2, -2),
    preset('worse', 'usual', -3, -3),
    preset('worst', 'usual', -4, -4),
    preset('usual', 'urgent', 0, -0.3),
    preset('usual', 'urgent-by-another-name', 0, -0.3, 'usual-urgent'),
  ];
  const made = crossings(presets, ['priority', 'routing'], 100);
  const pairs = made.map(({ bundle: { priority, routing } }) =>
    [priority, routing].map((each) => (each?.type === 'parameterized' ? each.template : '')).join(' '),
  );
  expect(pairs[0]).toBe('urgent good');
  expect(pairs.slice().sort()).toEqual(['urgent bad', 'urgent good', 'urgent special', 'urgent worse']);
  for (const { bundle, parents, origin } of made) {
    expect(origin).toBe('crossing');
    // what the priority policy came with goes along
    expect(bundle.instanceScheduler).toEqual(spec('by-rank'));
    expect(parents.length).toBe(2);
  }
  expect(crossings(presets, ['priority', 'routing'], 1)).toHaveLength(1);
  expect(crossings(presets, ['eviction'], 10)).toEqual([]);
});

it('each policy of the presets is tried within the best, once each', () => {
  const best = preset('best', 'usual', 0.1, 0.1);
  const presets = [
    preset('good', 'usual', 0, 0),
    preset('good', 'urgent', 0, 0),
    preset('best', 'urgent', 0, 0),
  ];
  const made = presetsInContext(best, presets, ['routing', 'priority', 'eviction']);
  expect(made.map(({ changes }) => changes)).toEqual([['routing: good'], ['priority: urgent']]);
  expect(made[0].bundle).toEqual({ routing: spec('good'), priority: spec('usual') });
  expect(made[0].parents).toEqual(['best-usual', 'good-usual']);
  // its ranks are read by what it came with
  expect(made[1].bundle.instanceScheduler).toEqual(spec('by-rank'));
});
