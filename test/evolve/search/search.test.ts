import { expect, it } from 'vitest';
import {
  choose,
  finalistsOf,
  judge,
  readState,
  type SearchPlan,
  type SearchState,
} from '../../../src/policy/evolve/search/breeding.ts';
import { NumberSpace } from '../../../src/policy/evolve/search/individual.ts';
import { expectedCases, Search } from '../../../src/policy/evolve/search/search.ts';
import { AnalyticEvaluator, guides, presets } from './analyticEvaluator.ts';

const plan: SearchPlan = {
  seed: 3,
  population: 30,
  slots: ['priority', 'routing'],
  islands: 3,
  migrateEvery: 4,
  features: ['policy_nodes', 'highest'],
  bins: 6,
};

async function run(generations: number, workers = 1, over: SearchPlan = plan): Promise<Search> {
  const search = await Search.begin(over, presets, new AnalyticEvaluator(workers), guides);
  for (let generation = 0; generation < generations; generation++) await search.step();
  return search;
}

it('finds a bundle that beats every preset by far, on the train suite only', async () => {
  const evaluator = new AnalyticEvaluator(1);
  const search = await Search.begin(plan, presets, evaluator, guides);
  const before = search.record.best;
  for (let generation = 0; generation < 60; generation++) await search.step();
  expect(evaluator.asked.every(({ suite }) => suite === 'train')).toBe(true);
  expect(before).toBe(0);
  const [best] = search.ranking;
  expect(best.score).toBeGreaterThan(5);
  expect(best.objectives[0]).toBeGreaterThan(-1);
  const first = search.state.individuals.slice(0, 3);
  const finalists = finalistsOf(search.ranking, 6, plan.slots);
  const { chosen } = await choose(finalists, first, evaluator);
  const judged = await judge(chosen.individual, first, evaluator);
  const [winner, ...others] = judged.map(({ hidden }) => hidden.score);
  for (const other of others) expect(winner).toBeGreaterThan(other);
});

it('each way of search finds something of its own', async () => {
  const { individuals } = (await run(40, 1, { ...plan, seed: 1 })).state;
  const origins = new Set(individuals.map(({ origin }) => origin));
  expect([...origins].sort()).toEqual(['cma', 'crossing', 'preset', 'variation']);
  const kinds = new Set(individuals.map(({ bundle }) => bundle.routing?.type));
  expect(kinds.size).toBe(3);
});

it('tries every term that a program of the best lacks, in the third generation', async () => {
  const search = await Search.begin(plan, [presets[1]], new AnalyticEvaluator(1), guides);
  await search.step();
  await search.step();
  const base = search.ranking[0];
  await search.step();
  const terms = search.state.individuals.filter(
    ({ generation, origin, bundle }) =>
      generation === 3 &&
      origin === 'variation' &&
      /[^:] [+-] [\d.]+ \* x.load$/.test(bundle.mutations?.join() ?? ''),
  );
  expect(terms.length).toBeGreaterThan(1);
  expect(terms.every(({ parents }) => parents[0] === base.id)).toBe(true);
});

it('gives the same result for any number of workers, and another for another seed', async () => {
  const one = JSON.stringify((await run(12, 1)).state);
  expect(JSON.stringify((await run(12, 7)).state)).toBe(one);
  expect(JSON.stringify((await run(12, 1, { ...plan, seed: 4 })).state)).not.toBe(one);
});

it('a search that was killed after any generation goes on to the same end', async () => {
  const whole = JSON.stringify((await run(10)).state);
  for (const killedAfter of [0, 1, 4, 9]) {
    const text = JSON.stringify((await run(killedAfter)).state);
    const search = Search.resume(readState(text, plan, 'state'), new AnalyticEvaluator(2), guides);
    while (search.state.generation < 10) await search.step();
    expect(JSON.stringify(search.state)).toBe(whole);
  }
});

it('an abort in the middle of a generation leaves the state of the last one', async () => {
  const search = await run(3);
  const before = JSON.stringify(search.state);
  await expect(search.step(AbortSignal.abort(new Error('stopped')))).rejects.toThrow('stopped');
  expect(JSON.stringify(search.state)).toBe(before);
  await search.step();
  expect(JSON.stringify(search.state)).toBe(JSON.stringify((await run(4)).state));
});

it('a bundle is never evaluated twice', async () => {
  const evaluator = new AnalyticEvaluator(1);
  const search = await Search.begin(plan, presets, evaluator, guides);
  for (let generation = 0; generation < 20; generation++) await search.step();
  // candidates that go on in a race are asked again, on more cases, of which the evaluator keeps the first
  const firstRung = evaluator.asked.filter(({ cases }, i) => i === 0 || cases === 4);
  const asked = firstRung.reduce((sum, { count }) => sum + count, 0);
  expect(search.state.evaluations).toBe(asked);
  expect(search.state.individuals.length).toBe(asked);
});

it('the simulations that a search is expected to ask for are about as many as it asks for', async () => {
  const evaluator = new AnalyticEvaluator(1);
  // four of the eight cases are new on each of the two rungs
  const simulated = (from: number): number =>
    evaluator.asked.slice(from).reduce((sum, { count }) => sum + 4 * count, 0);
  const expected = expectedCases(plan.population, presets.length, 6, evaluator);
  const search = await Search.begin(plan, presets, evaluator, guides);
  expect(expected.presets).toBe(presets.length * 8);
  const from = evaluator.asked.length;
  for (let generation = 0; generation < 20; generation++) await search.step();
  const share = simulated(from) / (20 * expected.generation);
  expect(share).toBeGreaterThan(0.5);
  expect(share).toBeLessThan(2);
  expect(expected.judging).toBe((6 + presets.length) * 8 + (1 + presets.length) * 8);
});

it('every bundle names its parents, which stand before it in the lineage', async () => {
  const { individuals } = (await run(15)).state;
  const seen = new Set<string>();
  for (const { id, origin, parents, bundle } of individuals) {
    for (const parent of parents) expect(seen.has(parent)).toBe(true);
    expect(parents.length > 0).toBe(origin !== 'preset');
    if (origin !== 'preset') {
      expect(bundle.parentId).toBe(parents[0]);
      expect(bundle.mutations?.length).toBeGreaterThan(0);
    }
    seen.add(id);
  }
});

it('the best score never falls, and the front ends at least as good as it began', async () => {
  const { history } = (await run(20)).state;
  history.slice(1).forEach((record, i) => {
    expect(record.best).toBeGreaterThanOrEqual(history[i].best);
  });
  expect(history[20].hypervolume).toBeGreaterThan(history[0].hypervolume ?? Infinity);
});

it('bad states and changed plans are refused with the field and the remedy', async () => {
  const text = JSON.stringify((await run(1)).state);
  expect(() => readState('{', plan, 'state.json')).toThrow(/state\.json is not JSON/);
  expect(() => readState('{}', plan, 'state.json')).toThrow(/no state of version 5/);
  expect(() => readState(text, { ...plan, seed: 8 }, 'state.json')).toThrow(/seed is 8, and was 3/);
  const state: SearchState = readState(text, plan, 'state.json');
  expect(state.generation).toBe(1);
});

it('presets are refused if none of them runs', async () => {
  const broken = [{ routing: { type: 'code', language: 'starlark', source: 'x =' } }] as const;
  await expect(Search.begin(plan, broken, new AnalyticEvaluator(1), guides)).rejects.toThrow(/do not run/);
});

it('an evaluator that gives no cases is refused', async () => {
  const evaluator = new AnalyticEvaluator(1);
  const whole = evaluator.evaluate.bind(evaluator);
  evaluator.evaluate = async (...asked) => (await whole(...asked)).map(({ cases: _, ...rest }) => rest);
  await expect(Search.begin(plan, presets, evaluator, guides)).rejects.toThrow(/evaluator .*without cases/);
});

it('the numbers of a bundle are a point, and the point is the bundle', () => {
  for (const bundle of presets) {
    const space = new NumberSpace(bundle, guides);
    expect(space.dimensions).toBeGreaterThan(2);
    expect(new NumberSpace(space.at(space.point), guides).point).toEqual(space.point);
    const moved = space.at(space.point.map(() => 0.75));
    expect(new NumberSpace(moved, guides).dimensions).toBe(space.dimensions);
    expect(moved).not.toEqual(bundle);
  }
});

it('an echo has the standing of the first of its behaviour, and only presets are ranked beside it', async () => {
  const search = await run(20);
  const echoes = search.state.individuals.filter(({ echoOf }) => echoOf !== undefined);
  expect(echoes.length).toBeGreaterThan(0);
  for (const { echoOf = '', score, leads, cases, behaviour, bundle } of echoes) {
    const first = search.state.individuals.find(({ id }) => id === echoOf);
    expect(first).toMatchObject({ score, leads, cases, behaviour });
    expect(first?.bundle).not.toEqual(bundle);
    expect(first).not.toHaveProperty('echoOf');
  }
  const found = search.ranking.filter(({ origin }) => origin !== 'preset');
  const behaviours = found.map(({ behaviour }) => behaviour);
  expect(new Set(behaviours).size).toBe(behaviours.length);
});
