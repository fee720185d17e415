/**
 * Choosing between loading and computing is about as good as the better of loading always and of having no tiers, on
 * links far slower than the engine, about as fast, and far faster. `npm run campaign -- loads` tries a whole family.
 */

import { expect, it } from 'vitest';
import { draw, meanTtftMs } from './loadFamily.ts';

// Each of them punishes a wrong choice by a tenth or more: that is the control. The last one was lost by 7 % while the
// cost of computing was taken from steps that read the weights for few tokens.
it.each([
  ['a slow link, where no tiers are better', 1029, 'without'],
  ['a link behind the engine', 1020, 'always'],
  ['a fast link', 1018, 'always'],
  ['a link as fast as the engine, whose short steps cost little', 2018, 'always'],
] as const)('%s: deployment %i', (_, seed, better) => {
  const drawn = draw(seed, 0.35);
  const always = meanTtftMs(drawn, 'always');
  const without = meanTtftMs(drawn, 'without');
  const [good, bad] = better === 'always' ? [always, without] : [without, always];
  expect(bad, 'the control').toBeGreaterThan(good * 1.1);
  expect(meanTtftMs(drawn, 'when-faster')).toBeLessThan(good * 1.05);
});
