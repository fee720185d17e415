import { describe, expect, it } from 'vitest';
import { HotColdClassifier } from '../../../src/embed/hotColdClassifier.ts';
import { BlockUse, useRates } from '../../../src/runtime/tables/contentTable.ts';

const S = 1_000_000;
const classifier = new HotColdClassifier();

/** Used `perSecond` times a second from second 0 to `untilS`. */
function used(perSecond: number, untilS: number): { use: BlockUse } {
  const use = new BlockUse(useRates());
  for (let i = 0; i / perSecond <= untilS; i++) use.used(Math.round((i / perSecond) * S));
  return { use };
}

describe('the thresholds of the notes are the defaults', () => {
  it.each([
    [2, 'hot'],
    [0.3, 'warm'],
    [0.03, 'cold'],
  ] as const)('a block used %d times a second is %s', (perSecond, temperature) => {
    expect(classifier).toMatchObject({
      hotFrequencyThreshold: 1,
      coldTimeoutS: 60,
      warmFrequencyThreshold: 0.1,
    });
    const block = used(perSecond, 600);
    const halfway = block.use.lastUseUs + (0.5 / perSecond) * S;
    expect(classifier.classify(block, halfway)).toBe(temperature);
  });
});

describe('each trap of the note, in both directions', () => {
  it('a block that was hot once turns cold without any call; one that is still used stays hot', () => {
    const block = used(50, 100);
    const temperatures = [101, 159, 160, 161].map((s) => classifier.classify(block, s * S));
    expect(temperatures[0]).toBe('hot');
    expect(temperatures[2], 'the timeout comes before the frequency').toBe('cold');
    expect(temperatures[3]).toBe('cold');
    expect(classifier.classify(used(50, 200), 160 * S + 41 * S)).toBe('hot');
  });

  it('a frequency does not inflate over a long life: 10,000 uses long ago are worth less than 20 now', () => {
    const old = used(5, 2000);
    const young = new BlockUse(useRates());
    for (let i = 0; i < 20; i++) young.used(2040 * S + i * 0.5 * S);
    const now = 2050 * S;
    expect(classifier.classify({ use: young }, now)).toBe('hot');
    expect(old.use.uses).toBeGreaterThan(100 * young.uses);
    expect(old.use.frequencyAt(now)).toBeLessThan(young.frequencyAt(now));
  });

  it('a short gap before the last use is not taken for a frequency', () => {
    const use = new BlockUse(useRates());
    use.used(0);
    use.used(30 * S);
    use.used(30 * S + 1000);
    expect(use.frequencyAt(30 * S + 1000)).toBeLessThan(0.2);
  });

  it('a block that was just made is not cold at once, and is soon without further uses', () => {
    const block = used(1, 0);
    expect(classifier.classify(block, 0)).toBe('warm');
    expect(classifier.classify(block, 20 * S)).toBe('cold');
    const unknown = { use: new BlockUse(useRates()) };
    expect(classifier.classify(unknown, 1e12), 'of which nothing is known').toBe('warm');
  });

  it('the hotter a block, the longer its lifetime, and it ends when the block turns cold', () => {
    const lifetimes = [0.12, 0.2, 0.4, 0.8, 3].map((perSecond) => {
      const block = used(perSecond, 300);
      const now = block.use.lastUseUs + 0.1 * S;
      const seconds = classifier.predictLifetime(block, now);
      if (seconds > 0) {
        expect(classifier.classify(block, now + (seconds - 0.01) * S)).not.toBe('cold');
        expect(classifier.classify(block, now + (seconds + 0.01) * S)).toBe('cold');
      }
      return seconds;
    });
    expect([...lifetimes].sort((a, b) => a - b)).toEqual(lifetimes);
    expect(lifetimes[4]).toBeGreaterThan(5 * lifetimes[0]);
    expect(classifier.predictLifetime(used(9, 100), 161 * S)).toBe(0);
  });
});

it('the score is higher for colder blocks: class first, then idle time, then frequency', () => {
  const now = 300 * S;
  const score = (perSecond: number, untilS: number): number =>
    classifier.getPriorityScore(used(perSecond, untilS), now);
  const fromHot = [
    score(5, 300),
    score(2, 300),
    score(2, 285),
    score(0.4, 300),
    score(5, 240),
    score(0.02, 200),
  ];
  expect([...fromHot].sort((a, b) => a - b)).toEqual(fromHot);
  expect(score(2, 120), 'longer idle').toBeGreaterThan(score(2, 180));
  for (const each of fromHot) expect(each).toBeLessThan(6);
});

it('invalid thresholds are refused by name', () => {
  expect(() => new HotColdClassifier({ coldTimeoutS: 0 })).toThrow(/coldTimeoutS is 0/);
  expect(() => new HotColdClassifier({ hotFrequencyThreshold: Number.NaN })).toThrow(/hotFrequencyThreshold/);
  expect(() => new HotColdClassifier({ warmFrequencyThreshold: 2 })).toThrow(
    /warmFrequencyThreshold is 2, above hotFrequencyThreshold 1/,
  );
});

it('options that it does not know, or of a wrong kind, are refused by name', () => {
  const wrong = (options: object, field: string): void => {
    expect(() => new HotColdClassifier(options)).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field }),
    );
  };
  wrong({ coldTimeoutSeconds: 5 }, 'coldTimeoutSeconds');
  wrong({ downFrom: 0.9 }, 'downFrom');
  wrong({ coldTimeoutS: '5' }, 'coldTimeoutS');
  wrong({ hotFrequencyThreshold: null }, 'hotFrequencyThreshold');
});
