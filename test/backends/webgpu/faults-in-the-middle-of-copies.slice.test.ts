/** A small piece of `npm run campaign -- copies`: losses of devices and of memory while threads copy. */

import { expect, it } from 'vitest';
import { testSeed } from '../../../src/testing/index.ts';
import { copyFaults } from './copyFaults.ts';

const seed = testSeed(52);

it(`nothing is wrong, without an end or left under way in twelve rounds (seed ${seed})`, async () => {
  const counts = await copyFaults(seed, 12);
  expect(counts).toMatchObject({ wrong: 0, unended: 0, leftUnderWay: 0 });
  expect(counts.loaded + counts.refused).toBeGreaterThan(0);
});
