import { describe, expect, it } from 'vitest';
import {
  type ComputeEstimate,
  type LoadEstimate,
  loadOrRecompute,
  type PrefixLeft,
  planOf,
} from '../../../src/runtime/planning/loadOrRecompute.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';

const left: PrefixLeft = { blocks: 64, blockTokens: 16, blockBytes: 131072, computedTokens: 0 };
const compute: ComputeEstimate = { usPerToken: 10, usPerTokenSquared: 0.01 };
const load: LoadEstimate = { startUs: 500, bandwidthBytesPerS: 1e9 };

function bestOfAll(of: PrefixLeft, by: ComputeEstimate, over: LoadEstimate): number {
  const ends = Array.from({ length: of.blocks + 1 }, (_, m) => planOf(m, of, by, over).endUs);
  return Math.min(...ends);
}

const seed = testSeed(7);
it(`no other division ends earlier, and none that ends as early computes less (seed ${seed})`, () => {
  const random = new SeededRandom(seed);
  for (let round = 0; round < 2000; round++) {
    const of = { ...left, blocks: random.below(130), computedTokens: random.below(4096) };
    const by = { usPerToken: random.below(200) / 10, usPerTokenSquared: random.below(100) / 1000 };
    const over = { startUs: random.below(20_000), bandwidthBytesPerS: 1e6 * (1 + random.below(5000)) };
    const plan = loadOrRecompute(of, by, over);
    expect(plan.compute + plan.load).toBe(of.blocks);
    expect(plan.endUs).toBe(bestOfAll(of, by, over));
    expect(plan).toEqual(planOf(plan.compute, of, by, over));
    if (plan.compute > 0) expect(planOf(plan.compute - 1, of, by, over).endUs).toBeGreaterThan(plan.endUs);
  }
});

describe('the ends of the range', () => {
  it('a slow start or link is not worth waiting for', () => {
    expect(loadOrRecompute(left, compute, { ...load, startUs: 1e9 })).toMatchObject({ load: 0, loadUs: 0 });
    expect(loadOrRecompute(left, compute, { ...load, bandwidthBytesPerS: 1 }).load).toBe(0);
  });

  it('a dear model loads everything', () => {
    expect(loadOrRecompute(left, { ...compute, usPerToken: 1e6 }, load).compute).toBe(0);
  });

  it('nothing left is nothing to do', () => {
    expect(loadOrRecompute({ ...left, blocks: 0 }, compute, load)).toEqual({
      compute: 0,
      load: 0,
      computeUs: 0,
      loadUs: 0,
      endUs: 0,
    });
  });
});

it('decided again when the link turns slower, what is left is computed in larger part', () => {
  const first = loadOrRecompute(left, compute, load);
  expect(first.compute).toBeGreaterThan(4);
  expect(first.load).toBeGreaterThan(20);
  // Four blocks are computed and ten have arrived when the bandwidth falls to a tenth.
  const now = { ...left, blocks: 64 - 4 - 10, computedTokens: 64 };
  const slower = { startUs: 0, bandwidthBytesPerS: 1e8 };
  const again = loadOrRecompute(now, compute, slower);
  expect(again.compute / now.blocks).toBeGreaterThan(first.compute / left.blocks);
  expect(again.endUs).toBeLessThan(planOf(first.compute - 4, now, compute, slower).endUs);
});

it('tokens further back cost more, so behind a long prefix less is computed', () => {
  const far = loadOrRecompute({ ...left, computedTokens: 8192 }, compute, load);
  expect(far.compute).toBeLessThan(loadOrRecompute(left, compute, load).compute);
});

it.each([
  ['blocks', { ...left, blocks: -1 }, compute, load],
  ['usPerToken', left, { ...compute, usPerToken: Number.NaN }, load],
  ['startUs', left, compute, { ...load, startUs: -1 }],
  ['bandwidthBytesPerS', left, compute, { ...load, bandwidthBytesPerS: 0 }],
] as const)('a bad %s is refused by name', (field, of, by, over) => {
  expect(() => loadOrRecompute(of, by, over)).toThrow(expect.objectContaining({ code: 'TKV_CONFIG', field }));
});
