import { expect, it } from 'vitest';
import {
  cellOf,
  dominates,
  type Elite,
  type Grid,
  hypervolume,
  migrate,
  newIslands,
  offer,
  paretoRanks,
  qdScore,
} from '../../../src/policy/evolve/search/selection.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';
import { randomPoints } from './problems.ts';
import { askPython, lacksPackage } from './python/askPython.ts';

const elitesOf = (grid: Grid): Elite[] => Object.values(grid).sort((a, b) => b.score - a.score);

const seed = Number(process.env.TIERKV_SEED ?? 7);

it('a point dominates another only where it is nowhere worse', () => {
  expect(dominates([1, 2], [1, 1])).toBe(true);
  expect(dominates([1, 1], [1, 1])).toBe(false);
  expect(dominates([2, 0], [1, 1])).toBe(false);
});

it('ranks are those of peeling off one front after the other', () => {
  expect(paretoRanks([])).toEqual([]);
  expect(
    paretoRanks([
      [0, 3],
      [1, 1],
      [3, 0],
      [0, 0],
      [1, 1],
    ]),
  ).toEqual([0, 0, 0, 1, 0]);
});

it('hypervolume counts overlaps once, and nothing below the reference', () => {
  expect(hypervolume([], [0, 0])).toBe(0);
  expect(
    hypervolume(
      [
        [2, 1],
        [1, 2],
        [-1, 9],
      ],
      [0, 0],
    ),
  ).toBe(3);
  expect(hypervolume([[2, 3, 4]], [1, 1, 1])).toBe(6);
});

it(`hypervolume is the share of random points that the set dominates (seed ${seed})`, () => {
  const random = new GoRandom(BigInt(seed));
  for (const dimensions of [2, 3, 4]) {
    const points = randomPoints(8, dimensions, random);
    const samples = randomPoints(20_000, dimensions, random);
    const below = samples.filter((x) => points.some((point) => x.every((each, m) => each < point[m])));
    const exact = hypervolume(points, new Array(dimensions).fill(0));
    expect(Math.abs(below.length / samples.length - exact)).toBeLessThan(0.02);
  }
});

it('a cell keeps the best, and features outside the axes fall into the outermost cells', () => {
  const axes = [
    { name: 'nodes', min: 0, max: 100, bins: 4 },
    { name: 'hits', min: 0, max: 1, bins: 2 },
  ];
  expect(cellOf(axes, { nodes: 26, hits: 0.5 })).toBe('1/1');
  expect(cellOf(axes, { nodes: -5, hits: 7 })).toBe('0/1');
  expect(cellOf(axes, { nodes: Number.NaN })).toBe('0/0');
  const state = newIslands(axes, 2);
  expect(offer(state.islands[0], '0/0', { id: 'a', score: 1 })).toBe(true);
  expect(offer(state.islands[0], '0/0', { id: 'b', score: 1 })).toBe(false);
  expect(offer(state.islands[0], '0/0', { id: 'c', score: 2 })).toBe(true);
  offer(state.islands[0], '1/0', { id: 'd', score: 3 });
  migrate(state, 1);
  expect(elitesOf(state.islands[1]).map(({ id }) => id)).toEqual(['d']);
  expect(elitesOf(state.islands[0]).map(({ id }) => id)).toEqual(['d', 'c']);
  expect(qdScore(state, 0)).toBe(5);
});

const lacksPymoo = lacksPackage('pymoo');
const lacksRibs = lacksPackage('ribs');

it.skipIf(lacksPymoo)(`pymoo gives the same ranks and hypervolumes (seed ${seed})`, () => {
  const random = new GoRandom(BigInt(seed));
  for (const dimensions of [2, 3]) {
    const points = randomPoints(120, dimensions, random).map((x) =>
      x.map((each) => Math.round(each * 20) / 20),
    );
    expect(askPython<number[]>({ task: 'ranks', points })).toEqual(paretoRanks(points));
    const fronts = Array.from({ length: 10 }, () => randomPoints(30, dimensions, random));
    const reference = new Array(dimensions).fill(0.2);
    const theirs = askPython<number[]>({ task: 'hypervolume', fronts, reference });
    fronts.forEach((front, i) => {
      expect(hypervolume(front, reference)).toBeCloseTo(theirs[i], 10);
    });
  }
});

it.skipIf(lacksRibs)(`ribs keeps the same elites (seed ${seed})`, () => {
  const random = new GoRandom(BigInt(seed));
  const measures = randomPoints(400, 2, random).map(([a, b]) => [a * 12 - 1, b * 1.2 - 0.1]);
  const scores = measures.map(() => random.float64());
  const axes = [
    { name: 'a', min: 0, max: 10, bins: 8 },
    { name: 'b', min: 0, max: 1, bins: 6 },
  ];
  const state = newIslands(axes, 1);
  measures.forEach(([a, b], i) => {
    offer(state.islands[0], cellOf(axes, { a, b }), { id: String(i), score: scores[i] });
  });
  const ids = elitesOf(state.islands[0])
    .map(({ id }) => Number(id))
    .sort((a, b) => a - b);
  const ranges = [
    [0, 10],
    [0, 1],
  ];
  const theirs = askPython<{ elites: number[]; qd: number; coverage: number }>({
    task: 'archive',
    bins: [8, 6],
    ranges,
    measures,
    scores,
  });
  expect(ids).toEqual(theirs.elites);
  expect(qdScore(state, 0)).toBeCloseTo(theirs.qd, 8);
  expect(ids.length).toBe(theirs.coverage);
});
