import { expect, it } from 'vitest';
import {
  askCma,
  type CmaState,
  cmaSpread,
  newCma,
  symmetricEigen,
  tellCma,
} from '../../../src/policy/evolve/search/cmaEs.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';
import { ellipsoid, medianOf, rastrigin, sphere } from './problems.ts';
import { askPython, lacksPackage } from './python/askPython.ts';

type Problem = (x: readonly number[]) => number;

const seeds = Array.from({ length: 20 }, (_, i) => i + 1);

/** Evaluations until the target is reached, at most `most`. */
function cmaEvaluations(
  problem: Problem,
  n: number,
  seed: number,
  target: number,
  most: number,
  population = 12,
  sigma = 0.2,
): number {
  const random = new GoRandom(BigInt(seed));
  const state = newCma(new Array(n).fill(0.8), sigma, population);
  let count = 0;
  let best = -Infinity;
  while (best < target && count < most) {
    const points = askCma(state, random);
    const values = points.map(problem);
    best = Math.max(best, ...values);
    count += points.length;
    tellCma(state, points, values);
  }
  return count;
}

it('eigenvectors of a random symmetric matrix give it back', () => {
  const random = new GoRandom(3n);
  for (const n of [1, 2, 5, 20]) {
    const a = Array.from({ length: n }, () => Array.from({ length: n }, () => random.normFloat64()));
    const matrix = a.map((row, i) => row.map((_, j) => a[i][j] + a[j][i]));
    const { values, vectors } = symmetricEigen(matrix);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        const back = values.reduce((sum, value, k) => sum + value * vectors[i][k] * vectors[j][k], 0);
        expect(back).toBeCloseTo(matrix[i][j], 10);
        const product = values.reduce((sum, _, k) => sum + vectors[i][k] * vectors[j][k], 0);
        expect(product).toBeCloseTo(i === j ? 1 : 0, 12);
      }
    }
  }
});

it('CMA-ES finds the optimum of sphere and ellipsoid from every seed', () => {
  for (const seed of seeds) {
    expect(cmaEvaluations(sphere, 8, seed, -1e-8, 20_000), `seed ${seed}`).toBeLessThan(20_000);
    expect(cmaEvaluations(ellipsoid, 8, seed, -1e-8, 20_000), `seed ${seed}`).toBeLessThan(20_000);
  }
});

it('CMA-ES with a large population finds the optimum among the many of Rastrigin', () => {
  const found = seeds.filter((seed) => cmaEvaluations(rastrigin, 4, seed, -1e-6, 60_000, 120, 0.5) < 60_000);
  expect(found.length).toBeGreaterThanOrEqual(16);
});

it('a state that went through JSON goes on to the same points', () => {
  const run = (reload: boolean): number[][] => {
    let state = newCma([0.5, 0.5, 0.5], 0.3, 8, [0, 0.1, 0]);
    for (let generation = 0; generation < 12; generation++) {
      const points = askCma(state, new GoRandom(BigInt(generation)));
      tellCma(state, points, points.map(ellipsoid));
      if (reload) state = JSON.parse(JSON.stringify(state)) as CmaState;
    }
    return askCma(state, new GoRandom(99n));
  };
  expect(run(true)).toEqual(run(false));
});

it('a coordinate with a least deviation never freezes, and the others settle', () => {
  const random = new GoRandom(5n);
  const state = newCma([0.8, 0.8], 0.2, 10, [0.1, 0]);
  for (let generation = 0; generation < 80; generation++) {
    const points = askCma(state, random);
    tellCma(state, points, points.map(sphere));
  }
  const points = Array.from({ length: 40 }, () => askCma(state, random)).flat();
  const spread = (axis: number): number => {
    const mean = points.reduce((sum, x) => sum + x[axis], 0) / points.length;
    return Math.sqrt(points.reduce((sum, x) => sum + (x[axis] - mean) ** 2, 0) / points.length);
  };
  expect(spread(0)).toBeGreaterThan(0.07);
  expect(spread(1)).toBeLessThan(0.07);
  expect(cmaSpread(state)).toBeGreaterThan(0);
});

const hasNoCma = lacksPackage('cmaes');

it.skipIf(hasNoCma)('cmaes of PyPI moves its distribution as ours does, on the same points', () => {
  for (const { n, population } of [
    { n: 2, population: 6 },
    { n: 5, population: 8 },
    { n: 12, population: 20 },
  ]) {
    const random = new GoRandom(BigInt(n));
    const state = newCma(new Array(n).fill(0.6), 0.1, population);
    const generations: { points: number[][]; values: number[] }[] = [];
    const ours: CmaState[] = [];
    for (let generation = 0; generation < 25; generation++) {
      const points = askCma(state, random);
      const values = points.map(ellipsoid);
      tellCma(state, points, values);
      generations.push({ points, values });
      ours.push(structuredClone(state));
    }
    const mean = new Array(n).fill(0.6);
    const theirs = askPython<{ mean: number[]; sigma: number; covariance: number[][] }[]>({
      task: 'cma',
      mean,
      sigma: 0.1,
      population,
      generations,
    });
    theirs.forEach((their, i) => {
      expect(ours[i].sigma / their.sigma).toBeCloseTo(1, 8);
      their.mean.forEach((each, j) => {
        expect(ours[i].mean[j]).toBeCloseTo(each, 9);
      });
      const scale = Math.max(...their.covariance.flat().map(Math.abs));
      their.covariance.forEach((row, a) => {
        row.forEach((each, b) => {
          expect(ours[i].covariance[a][b] / scale).toBeCloseTo(each / scale, 7);
        });
      });
    });
  }
});

it.skipIf(hasNoCma)('it needs as many evaluations to a target as cmaes of PyPI, over 20 seeds', () => {
  for (const [name, problem] of [
    ['sphere', sphere],
    ['ellipsoid', ellipsoid],
  ] as const) {
    const ours = seeds.map((seed) => cmaEvaluations(problem, 8, seed, -1e-6, 20_000));
    const task = { task: 'cmaEvaluations', problem: name, dimensions: 8, target: -1e-6, most: 20_000 };
    const theirs = askPython<number[]>({ ...task, seeds, population: 12 });
    const ratio = medianOf(ours) / medianOf(theirs);
    expect(ratio, `${name}: ${medianOf(ours)} and ${medianOf(theirs)}`).toBeGreaterThan(0.8);
    expect(ratio, `${name}: ${medianOf(ours)} and ${medianOf(theirs)}`).toBeLessThan(1.25);
  }
});
