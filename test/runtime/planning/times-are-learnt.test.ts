/** What steps and loads take, learnt from the steps and loads that have ended. */

import { describe, expect, it } from 'vitest';
import { ComputePace, squaresOf } from '../../../src/runtime/index.ts';
import { LinkPace, RecentFit } from '../../../src/runtime/planning/pace.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';

const seed = testSeed(11);

describe(`a fit (seed ${seed})`, () => {
  it('finds the weights that made the samples, zeros included', () => {
    const random = new SeededRandom(seed);
    for (let round = 0; round < 50; round++) {
      const made = [random.below(3) * 7, random.below(2) * 1000, random.below(3) * 0.01];
      if (made.every((weight) => weight === 0)) continue;
      const fit = new RecentFit(3, 0.98);
      for (let i = 0; i < 60; i++) {
        const x = [1 + random.below(500), 1, 1 + random.below(100_000)];
        const y = x.reduce((sum, each, f) => sum + each * made[f], 0);
        fit.add(x, y);
      }
      const weights = fit.weights() ?? [];
      made.forEach((weight, f) => {
        expect(weights[f]).toBeCloseTo(weight, 4);
      });
    }
  });

  it('takes a sample of which the others say nothing as it is', () => {
    const fit = new RecentFit(2, 0.9);
    for (let i = 0; i < 30; i++) fit.add([0, 1], 100);
    fit.add([50, 0], 500);
    expect([...(fit.weights() ?? [])].map(Math.round)).toEqual([10, 100]);
  });

  it('never gives a negative weight, and forgets what is no more so', () => {
    const random = new SeededRandom(seed);
    const fit = new RecentFit(2, 0.9);
    for (let i = 0; i < 100; i++) {
      fit.add([1 + random.below(100), 1], 1 + random.below(1000));
      for (const weight of fit.weights() ?? []) expect(weight).toBeGreaterThanOrEqual(0);
    }
    const expected = (): number => {
      const [each = 0, once = 0] = fit.weights() ?? [];
      return 12 * each + once;
    };
    for (let i = 0; i < 20; i++) fit.add([10 + (i % 5), 1], 100_000 * (10 + (i % 5)));
    expect(expected()).toBeGreaterThan(600_000);
    for (let i = 0; i < 20; i++) fit.add([10 + (i % 5), 1], 2 * (10 + (i % 5)));
    expect(expected()).toBeLessThan(50);
  });
});

describe('steps', () => {
  it('cost what their tokens, their contexts and themselves do', () => {
    const pace = new ComputePace();
    expect(pace.estimate(256)).toBe(undefined);
    for (let i = 0; i < 40; i++) {
      const [start, tokens] = [(i % 7) * 100, 1 + ((i * 37) % 256)];
      const squares = squaresOf(start, start + tokens);
      pace.stepEnded(tokens, squares, 500 + 20 * tokens + 0.05 * squares);
    }
    const { usPerToken, usPerTokenSquared, usPerStep, stepTokens } = pace.estimate(256) ?? {};
    expect([usPerStep, usPerToken].map((us) => Math.round(us ?? 0))).toEqual([500, 20]);
    expect(usPerTokenSquared).toBeCloseTo(0.05, 3);
    expect(stepTokens).toBe(256);
  });
});

describe(`steps that are held up now and then (seed ${seed})`, () => {
  const costs = (tokens: number, squares: number): number => 1400 + 110 * tokens + 0.12 * squares;
  /** Of `count` steps, most of which compute one token, one in ten takes two to eight times as long. */
  const learnt = (count: number, factor: number): { pace: ComputePace; good: number } => {
    const random = new SeededRandom(seed);
    const share = (): number => random.word() / 2 ** 32;
    const pace = new ComputePace();
    let good = 0;
    for (let i = 0; i < count; i++) {
      const tokens = i < 3 || random.chance(0.3) ? 16 + random.below(240) : 1;
      const start = random.below(2000);
      const squares = squaresOf(start, start + tokens);
      const noise = (0.8 + 0.4 * share()) * (random.chance(0.1) ? 2 + 6 * share() : 1);
      pace.stepEnded(tokens, squares, costs(tokens, squares) * noise * factor);
      const { usPerStep = 0, usPerToken = 0, usPerTokenSquared = 0 } = pace.estimate(256) ?? {};
      const estimate = usPerStep + 64 * usPerToken + 64 * 64 * usPerTokenSquared;
      const ratio = estimate / (costs(64, 64 * 64) * factor);
      if (i >= 20 && ratio < 1.5 && ratio > 1 / 1.5) good++;
    }
    return { pace, good: good / (count - 20) };
  };

  it('cost what they cost when they are not', () => {
    expect(learnt(2000, 1).good).toBeGreaterThan(0.9);
  });

  it('and become ten times slower, or quicker, are so two steps later', () => {
    for (const factor of [10, 0.1]) {
      const { pace } = learnt(500, 1);
      for (let i = 0; i < 3; i++) {
        pace.stepEnded(1, squaresOf(64, 65), costs(1, squaresOf(64, 65)) * factor);
        pace.stepEnded(64, 64 * 64, costs(64, 64 * 64) * factor);
      }
      const { usPerStep = 0, usPerToken = 0, usPerTokenSquared = 0 } = pace.estimate(256) ?? {};
      const estimate = usPerStep + 64 * usPerToken + 64 * 64 * usPerTokenSquared;
      expect(estimate / (costs(64, 64 * 64) * factor)).toBeGreaterThan(0.6);
      expect(estimate / (costs(64, 64 * 64) * factor)).toBeLessThan(1.6);
    }
  });
});

/** A run of loads of 1000 bytes, `startUs` and then one each `eachUs`, beside steps of `computeUs`. */
class Link {
  readonly pace: LinkPace = new LinkPace();
  now = 0;
  computed = 0;

  load(blocks: number, startUs: number, eachUs: number, computeUs = 0): void {
    for (let i = 0; i < blocks; i++) this.pace.began(1000, this.now, this.computed);
    this.now += startUs + computeUs;
    this.computed += computeUs;
    for (let i = 0; i < blocks; i++) {
      this.now += eachUs;
      this.pace.ended(1000, this.now, this.computed, true);
    }
    this.now += 50;
  }
}

describe('loads', () => {
  it('take their start, and their bytes over the bandwidth', () => {
    const link = new Link();
    for (let i = 0; i < 20; i++) link.load(1 + (i % 8), 300, 100);
    const { startUs, bandwidthBytesPerS, behindCompute } = link.pace.estimate(link.now);
    expect(Math.abs(startUs - 300)).toBeLessThan(5);
    expect(Math.abs(bandwidthBytesPerS / 1e7 - 1)).toBeLessThan(0.05);
    expect(behindCompute).toBe(0);
  });

  it('that wait for kernels are not slow: it is said how much they wait', () => {
    const link = new Link();
    for (let i = 0; i < 10; i++) link.load(1 + (i % 8), 300, 100);
    for (let i = 0; i < 40; i++) link.load(1 + (i % 8), 300, 100, 20_000);
    const { bandwidthBytesPerS, behindCompute = 0 } = link.pace.estimate(link.now);
    expect(Math.abs(bandwidthBytesPerS / 1e7 - 1)).toBeLessThan(0.1);
    expect(behindCompute).toBeGreaterThan(0.9);
  });

  it('that go beside kernels of the same length do not count as waiting for them', () => {
    const link = new Link();
    for (let i = 0; i < 10; i++) link.load(8, 0, 1000);
    for (let i = 0; i < 40; i++) {
      link.computed += 8000; // all the while
      link.load(8, 0, 1000);
    }
    const { bandwidthBytesPerS, behindCompute = 0 } = link.pace.estimate(link.now);
    expect(Math.abs(bandwidthBytesPerS / 1e6 - 1)).toBeLessThan(0.05);
    expect(behindCompute).toBeLessThan(0.1);
  });

  it('that are late make the link slower, the more the later they are', () => {
    const link = new Link();
    for (let i = 0; i < 10; i++) link.load(8, 0, 10);
    const { pace } = link;
    const inTime = pace.estimate(link.now).bandwidthBytesPerS;
    for (let i = 0; i < 4; i++) pace.began(1000, link.now, 0);
    expect(pace.estimate(link.now + 30, 4000).bandwidthBytesPerS / inTime).toBeCloseTo(1, 3);
    expect(pace.estimate(link.now + 4000, 4000).bandwidthBytesPerS).toBeCloseTo(1e6, -1);
    expect(pace.estimate(link.now + 40_000, 4000).bandwidthBytesPerS).toBeCloseTo(1e5, -1);
    for (let i = 0; i < 4; i++) pace.ended(1000, link.now + 50_000, 0, false);
    expect(pace.bytesUnderWay).toBe(0);
  });

  it('loads of others are waited for, and a link that was not measured for long is tried again', () => {
    const link = new Link();
    for (let i = 0; i < 10; i++) link.load(8, 0, 1000);
    link.pace.began(8000, link.now, 0);
    expect(link.pace.estimate(link.now).startUs).toBeCloseTo(8000, -2);
    expect(link.pace.estimate(link.now, 8000).startUs).toBe(0);
    link.pace.ended(8000, link.now + 8000, 0, true);
    const { bandwidthBytesPerS } = link.pace.estimate(link.now + 8000);
    const later = link.pace.estimate(link.now + 240_000_000);
    expect(later.bandwidthBytesPerS).toBeGreaterThan(4 * bandwidthBytesPerS);
  });
});
