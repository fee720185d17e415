import { expect, test } from 'vitest';
import { pairVerdicts, sensitivityText } from '../../../src/cli/evaluate/page.ts';

const names = ['a', 'b', 'c'];
const worlds = [
  { name: 'roofline', scores: [0.2, 0.1, 0.1] },
  { name: 'calibrated', scores: [0.1, -0.3, 0.102] },
  { name: 'blackbox', scores: [0.3, 0.4, undefined] },
];

test('a pair is robust where no world has it the other way round', () => {
  expect(pairVerdicts(names, worlds)).toEqual([
    { better: 'a', worse: 'b', holds: 2, ties: 0, reversed: ['blackbox'], worlds: 3 },
    { better: 'a', worse: 'c', holds: 1, ties: 1, reversed: [], worlds: 2 },
    { better: 'c', worse: 'b', holds: 1, ties: 1, reversed: [], worlds: 2 },
  ]);
});

test('the text says which pairs hold, and where the others do not', () => {
  const text = sensitivityText(names, worlds);
  expect(text).toContain('a over b: NOT robust, holds in 2 of 3 worlds; the other way round in blackbox');
  expect(text).toContain('a over c: robust, holds in 1 of 2 worlds, 1 ties within 0.005');
  expect(text).toContain('failed');
});

test('a policy without a score anywhere has no verdict, and mostly ties are a tie', () => {
  const text = sensitivityText(
    ['a', 'b', 'none'],
    [0, 1, 2].map((i) => ({ name: `world ${i}`, scores: [0.1 * Number(i === 0), 0, undefined] })),
  );
  expect(text).toContain('a over b: a tie, holds in 1 of 3 worlds, 2 ties within 0.005');
  expect(text).toContain('a and none: no verdict');
});
