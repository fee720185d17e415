/**
 * The estimator that a soak judges by: it finds a leak that was planted, and lets noise, steps and outliers
 * pass.
 */

import { describe, expect, it } from 'vitest';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { leaks, theilSen } from './slope.ts';
import { climbs } from './verdict.ts';

const MIB = 1024 * 1024;
const seed = testSeed(5);
const hours = Array.from({ length: 90 }, (_, i) => 0.25 + i / 120);

/** RSS around 300 MiB that jitters by 8 MiB, and grows by `growthBytes` an hour. */
function memory(growthBytes: number, random: SeededRandom): number[] {
  return hours.map((hour) => 300 * MIB + hour * growthBytes + random.below(8 * MIB));
}

describe(`the slope of a noisy series (seed ${seed})`, () => {
  it('finds a leak of 16 MiB an hour every time', () => {
    for (let trial = 0; trial < 50; trial++) {
      const slope = theilSen(hours, memory(16 * MIB, new SeededRandom(seed + trial)));
      expect(slope.perUnit / MIB).toBeGreaterThan(12);
      expect(slope.perUnit / MIB).toBeLessThan(20);
      expect(slope.low).toBeLessThan(slope.perUnit);
      expect(slope.high).toBeGreaterThan(slope.perUnit);
      expect(leaks(slope, 8 * MIB)).toBe(true);
    }
  });

  it('passes as flat where nothing leaks, or less than is tolerated, also with a fifth of the points far off', () => {
    for (let trial = 0; trial < 50; trial++) {
      const random = new SeededRandom(seed + trial);
      expect(leaks(theilSen(hours, memory(0, random)), 8 * MIB)).toBe(false);
      expect(leaks(theilSen(hours, memory(2 * MIB, random)), 8 * MIB)).toBe(false);
      const spoiled = memory(0, random).map((bytes) => (random.chance(0.2) ? bytes + 200 * MIB : bytes));
      expect(leaks(theilSen(hours, spoiled), 8 * MIB)).toBe(false);
    }
  });

  it('covers the truth with its interval in 95 of 100 cases', () => {
    let covered = 0;
    for (let trial = 0; trial < 400; trial++) {
      const { low, high } = theilSen(hours, memory(3 * MIB, new SeededRandom(seed + 1000 + trial)));
      if (low <= 3 * MIB && 3 * MIB <= high) covered++;
    }
    expect(covered / 400).toBeGreaterThan(0.91);
    expect(covered / 400).toBeLessThan(0.99);
  });

  it('is exact on a line, negative on one that falls, and refused of two points', () => {
    expect(theilSen([0, 1, 2, 4], [5, 7, 9, 13])).toEqual({ perUnit: 2, low: 2, high: 2 });
    expect(leaks(theilSen([0, 1, 2, 4], [13, 9, 7, 5]), 0)).toBe(false);
    expect(() => theilSen([0, 1], [0, 1])).toThrow(RangeError);
  });
});

describe('a count of what is held', () => {
  it('climbs when one more stays behind now and then, and not when it comes and goes', () => {
    expect(climbs([20, 20, 20, 21, 21, 21, 22, 22, 22])).toBe(true);
    expect(climbs([20, 23, 20, 21, 23, 20, 20, 23, 23])).toBe(false);
    expect(climbs([20, 20, 20, 20, 20, 20])).toBe(false);
  });
});
