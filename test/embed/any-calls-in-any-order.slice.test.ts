/** The slice of the random calls that `npm run ci` makes: `npm run campaign -- fuzz calls` makes more. */

import { expect, it } from 'vitest';
import { testSeed } from '../../src/testing/patternItems.ts';
import { anyCalls } from './anyCalls.ts';

const seed = testSeed(20262);

it(`800 calls leave nothing behind and end in nothing that is not documented (seed ${seed})`, async () => {
  const { ends, devicesLost } = await anyCalls(800, seed);
  // and it really did what it is there for
  const named = [...ends.keys()];
  for (const call of [
    'begin',
    'append',
    'seal',
    'step',
    'fork',
    'truncate',
    'release',
    'cancel',
    'prefetch',
  ]) {
    expect(
      named.some((end) => end.startsWith(`${call}: done`)),
      `${call} went well`,
    ).toBe(true);
  }
  const refused = named.filter((end) => end.endsWith('TKV_INPUT'));
  expect(refused.reduce((sum, end) => sum + (ends.get(end) ?? 0), 0)).toBeGreaterThan(50);
  expect(refused.length, 'of different calls').toBeGreaterThan(8);
  expect(devicesLost).toBe(2);
});
