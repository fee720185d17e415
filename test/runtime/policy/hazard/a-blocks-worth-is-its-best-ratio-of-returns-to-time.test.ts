import { expect, it } from 'vitest';
import {
  BUCKETS,
  bucketOf,
  bucketStartUs,
  CLASSES,
  ClassPart,
  classOf,
  Estimates,
} from '../../../../src/runtime/eviction/hazard/learning.ts';
import { Random } from '../../../fuzz/random.ts';

const seed = 27_08;

/** Features of a class number, most general first: the path from the root of the tree. */
function pathOf(c: number): string[] {
  const [part, uses, pace, tokens] = [
    Math.floor(c / 288),
    Math.floor(c / 48) % 6,
    Math.floor(c / 6) % 8,
    c % 6,
  ];
  return ['', `${part}`, `${part},${uses}`, `${part},${uses},${pace}`, `${part},${uses},${pace},${tokens}`];
}

/** The hazards of a class straight from the definition, without any state. */
function hazards(c: number, returns: Map<string, number[]>, exposures: Map<string, number[]>): number[] {
  const zeros = new Array<number>(BUCKETS).fill(0);
  let parent: number[] = [];
  for (const [depth, node] of pathOf(c).entries()) {
    const r = returns.get(node) ?? zeros;
    const e = exposures.get(node) ?? zeros;
    if (depth === 0) {
      parent = r.map((value, b) => (value + 4 * 0.01) / (e[b] + 4));
      continue;
    }
    const from = parent;
    const sum = (values: number[]): number => values.reduce((a, b) => a + b, 0);
    const level = (3 + sum(r)) / (3 + sum(e.map((value, b) => value * from[b])));
    parent = r.map((value, b) => (value + 10 * Math.min(0.95, level * from[b])) / (e[b] + 10));
  }
  return parent;
}

/** The best ratio over every age to give up at, by trying all of them. */
function bestRatio(p: readonly number[], from: number): number {
  let best = 0;
  let returned = 0;
  let heldUs = 0;
  let stays = 1;
  for (let b = from; b < BUCKETS; b++) {
    returned += stays * p[b];
    heldUs += stays * (bucketStartUs[b + 1] - bucketStartUs[b]) * (1 - p[b] / 2);
    stays *= 1 - p[b];
    best = Math.max(best, returned / heldUs);
  }
  return best;
}

it(`the worth of every class and age equals the best of all ages to give up at (seed ${seed})`, () => {
  const random = new Random(seed);
  const estimates = new Estimates();
  const returns = new Map<string, number[]>();
  const exposures = new Map<string, number[]>();
  const add = (table: Map<string, number[]>, c: number, bucket: number, weight: number): void => {
    for (const node of pathOf(c)) {
      const row = table.get(node) ?? new Array<number>(BUCKETS).fill(0);
      row[bucket] += weight;
      table.set(node, row);
    }
  };
  const classes = Array.from({ length: 30 }, () => random.below(CLASSES));
  for (let i = 0; i < 4_000; i++) {
    const c = random.pick(classes);
    const bucket = random.below(BUCKETS);
    const weight = random.pick([1, 0.5, 0.125]);
    add(exposures, c, bucket, weight);
    estimates.addExposures(c, bucket, weight);
    if (random.chance(bucket / 64)) {
      add(returns, c, bucket, weight);
      estimates.addReturns(c, bucket, weight);
    }
  }
  for (const c of classes) estimates.use(c);
  estimates.refit();
  for (const c of classes) {
    const p = hazards(c, returns, exposures);
    for (let b = 0; b < BUCKETS; b++) {
      const expected = bestRatio(p, b);
      const relative = estimates.worth[c * BUCKETS + b] / expected;
      expect(Math.abs(relative - 1), `class ${c}, bucket ${b}`).toBeLessThan(1e-9);
    }
  }
});

it('buckets cover all ages in half octaves, and every age lies within its own', () => {
  expect(bucketStartUs.length).toBe(BUCKETS + 1);
  for (let b = 2; b <= BUCKETS; b++) {
    expect(Math.abs(bucketStartUs[b] / bucketStartUs[b - 1] / Math.SQRT2 - 1)).toBeLessThan(1e-6);
  }
  for (let b = 0; b < BUCKETS; b++) {
    expect(bucketOf(bucketStartUs[b])).toBe(b);
    expect(bucketOf(bucketStartUs[b + 1] - 1)).toBe(b);
  }
  expect(bucketOf(1e15)).toBe(BUCKETS - 1);
});

it('every mix of features has a class of its own', () => {
  const seen = new Set<number>();
  for (const part of Object.values(ClassPart)) {
    for (const uses of [1, 2, 3, 5, 9, 33]) {
      for (const pace of [0, 8, 40, 72, 104, 136, 168, 200, 255]) {
        for (const tokens of [0, 65, 513, 2_049, 8_193, 32_769]) seen.add(classOf(part, uses, pace, tokens));
      }
    }
  }
  expect(seen.size).toBe(CLASSES);
  expect(Math.max(...seen)).toBe(CLASSES - 1);
});
