/** The slice of the soak of quotas that `npm run ci` makes. The whole: `npm run campaign -- soak quotas`. */

import { expect, it } from 'vitest';
import { testSeed } from '../../../src/testing/index.ts';
import { failuresOf, lastLine, soakQuotas } from './campaign.ts';

const seed = testSeed(1);
const slice = { seed, callsPerRound: 300, goesOn: (rounds: number) => rounds < 3 };

it(`what a quota protects stays in its tier, whatever others do, with the migrator on (seed ${seed})`, async () => {
  const report = await soakQuotas(slice);
  console.log(lastLine(report));
  expect(failuresOf(report)).toEqual([]);

  // and it really did what it is there for
  expect(report.evictions).toBeGreaterThan(300);
  for (const call of ['compute', 'step', 'state', 'prefetch', 'save', 'reuse', 'paged']) {
    expect(report.ends.get(`${call}: done`) ?? 0, call).toBeGreaterThan(2);
  }
});

it(`control: without quotas the same blocks are moved (seed ${seed})`, async () => {
  const report = await soakQuotas({ ...slice, goesOn: (rounds) => rounds < 1, withoutQuotas: true });
  expect(report.moved).toBeGreaterThan(100);
});
