/**
 * The classifier beside hindsight, on the excerpt of the conversation trace that the package carries and on a
 * made load. `bench/kv/classifier.ts` prints the whole trace.
 */

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { compareWithHindsight, type Use } from '../../../bench/kv/classifier/hindsight.ts';
import { syntheticUses } from '../../../bench/kv/classifier/loads.ts';

const options = { horizonS: 60, everyS: 15, cacheBlocks: 10_000 };

function excerpt(): Use[] {
  const path = new URL('../../../data/mooncake-conversation-excerpt.jsonl.gz', import.meta.url);
  const text = gunzipSync(readFileSync(fileURLToPath(path))).toString();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const { timestamp, hash_ids } = JSON.parse(line) as { timestamp: number; hash_ids: number[] };
      return { timeUs: timestamp * 1000, blocks: hash_ids };
    });
}

describe('with the thresholds of the notes and a horizon of 60 seconds', () => {
  it('it agrees with hindsight on 90 % of a load in which no class is frequent', () => {
    for (const seed of [1, 2]) {
      const { agreement, majority, balanced, samples } = compareWithHindsight(syntheticUses(seed), options);
      expect(samples).toBeGreaterThan(10_000);
      expect(majority, 'always one class').toBeLessThan(0.5);
      expect(agreement, `seed ${seed}`).toBeGreaterThan(0.9);
      expect(balanced, `seed ${seed}`).toBeGreaterThan(0.9);
    }
  });

  it('it recognises both the hot block and the cold ones of a chat service', () => {
    const { confusion, majority, balanced, samples } = compareWithHindsight(excerpt(), options);
    expect(samples).toBeGreaterThan(10_000);
    expect(majority, 'nearly everything is cold there').toBeGreaterThan(0.99);
    expect(balanced, 'always cold would be 0.5').toBeGreaterThan(0.9);
    expect(confusion[0][0], 'the prompt that all share').toBeGreaterThan(0);
    expect(confusion[0][2] + confusion[2][0], 'hot and cold are never taken for each other').toBe(0);
  });
});

describe('the comparison itself', () => {
  const every = (perSecond: number, from: number, to: number): Use[] =>
    Array.from({ length: Math.round((to - from) * perSecond) }, (_, i) => ({
      timeUs: Math.round((from + i / perSecond) * 1e6),
      blocks: [perSecond > 1 ? 1 : 2],
    }));

  it('counts a block that stays what it is as agreement, and one that stops as none', () => {
    const steady = [...every(4, 0, 400), ...every(0.3, 0, 400)].sort((a, b) => a.timeUs - b.timeUs);
    expect(compareWithHindsight(steady, options)).toMatchObject({ agreement: 1, balanced: 1 });
    const stops = [...every(4, 0, 100), ...every(0.3, 0, 400)].sort((a, b) => a.timeUs - b.timeUs);
    const { confusion } = compareWithHindsight(stops, { ...options, everyS: 40 });
    expect(confusion[0][2], 'said hot at 100 s, and never used again').toBe(1);
    expect(confusion[2][2], 'then cold').toBeGreaterThan(1);
  });
});
