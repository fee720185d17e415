/** The slice of the random calls that every run of the tests makes: `npm run test:fuzz -- calls` makes more. */

import { expect, it } from 'vitest';
import { testSeed } from '../../src/testing/seededRandom.ts';
import { anyCalls } from './anyCalls.ts';

const seed = testSeed(20262);

it(`1200 calls leave nothing behind and end in nothing that is not documented (seed ${seed})`, async () => {
  const { ends, devicesLost } = await anyCalls(1200, seed);
  // and it really did what it is there for
  const named = [...ends.keys()];
  for (const call of [
    'append',
    'seal',
    'step',
    'fork',
    'truncate',
    'recover',
    'release',
    'cancel',
    'prefetch',
  ]) {
    expect(
      named.some((end) => end.startsWith(`${call}: done`)),
      `${call} went well`,
    ).toBe(true);
    expect(
      named.some((end) => end.startsWith(`${call}: TKV_`)),
      `${call} was refused`,
    ).toBe(true);
  }
  expect(named).toEqual(
    expect.arrayContaining(['begin: TKV_FULL', 'begin: TKV_CAPACITY', 'begin: its signal']),
  );
  expect(devicesLost).toBeGreaterThan(0);
});
