import { describe, expect, it } from 'vitest';
import { BlockUse, halved, UseTable, useRates } from '../../../src/runtime/tables/contentTable.ts';

const S = 1_000_000;
const rates = useRates();

describe('halving', () => {
  it('agrees with the power function of the engine', () => {
    for (let x = 0; x < 59; x += 0.037) {
      expect(Math.abs(halved(x) / 2 ** -x - 1)).toBeLessThan(1e-9);
    }
    expect([halved(0), halved(-1), halved(60)]).toEqual([1, 1, 0]);
  });

  it('never rises', () => {
    for (let x = 0; x < 61; x += 0.0101) expect(halved(x + 0.01)).toBeLessThanOrEqual(halved(x));
  });
});

describe('a frequency', () => {
  it('matches the rate of use, whether uses began just now or long ago', () => {
    for (const perSecond of [0.05, 0.3, 2]) {
      const use = new BlockUse(rates);
      for (let i = 0; i < 400; i++) use.used(Math.round((i / perSecond) * S));
      const now = use.lastUseUs + Math.round((0.5 / perSecond) * S);
      expect(use.frequencyAt(now) / perSecond, `${perSecond} a second`).toBeGreaterThan(0.85);
      expect(use.frequencyAt(now) / perSecond, `${perSecond} a second`).toBeLessThan(1.15);
    }
    const young = new BlockUse(rates);
    for (let i = 0; i < 20; i++) young.used(i * S);
    expect(young.frequencyAt(20 * S)).toBeGreaterThan(0.9);
    expect(young.frequencyAt(20 * S)).toBeLessThan(1.1);
  });

  it('falls without uses, and without a call', () => {
    const use = new BlockUse(rates);
    for (let i = 0; i < 100; i++) use.used(i * S);
    const asked = [100, 120, 140, 200].map((second) => use.frequencyAt(second * S));
    expect([...asked].sort((a, b) => b - a)).toEqual(asked);
    expect(asked[1] / asked[0]).toBeCloseTo(0.5, 1);
    expect(use.uses, 'asking does not count as a use').toBe(100);
  });

  it('does not grow with the lifetime of a block that is used alike all the time', () => {
    const use = new BlockUse(rates);
    const seen: number[] = [];
    for (let i = 0; i < 5000; i++) {
      use.used(i * S);
      if (i === 200 || i === 4999) seen.push(use.frequencyAt(i * S));
    }
    expect(seen[1] / seen[0]).toBeCloseTo(1, 2);
  });

  it('of two uses at one instant is finite', () => {
    const use = new BlockUse(rates);
    use.used(7);
    use.used(7);
    expect(use.frequencyAt(7)).toBeCloseTo(2 / 5, 9);
    expect(new BlockUse(rates).frequencyAt(5)).toBe(0);
  });
});

it('a table of contents says what the histories of single blocks say, until a content is forgotten', () => {
  const table = new UseTable(4, rates);
  const one = new BlockUse(rates);
  for (const at of [0, 3, 4, 40, 41]) {
    table.used(2, at * S);
    one.used(at * S);
  }
  expect(table.of(2)).toMatchObject({ uses: 5, firstUseUs: 0, lastUseUs: 41 * S });
  expect(table.frequencyAt(2, 50 * S)).toBe(one.frequencyAt(50 * S));
  table.forget(2);
  expect(table.of(2).frequencyAt(50 * S)).toBe(0);
  table.used(2, 60 * S);
  expect(table.of(2)).toMatchObject({ uses: 1, firstUseUs: 60 * S });
});

it('a half-life that is not positive is refused by name', () => {
  expect(() => useRates(0)).toThrow(/halfLifeUs is 0/);
});
