/** The slice of the soak of tenants that `npm run ci` makes. The whole: `npm run campaign -- soak tenants`. */

import { expect, it } from 'vitest';
import { testSeed } from '../../../src/testing/index.ts';
import { failuresOf, lastLine, soakTenants } from './campaign.ts';

const seed = testSeed(1);
const slice = { seed, callsPerRound: 1200, goesOn: (rounds: number) => rounds < 3 };

it(`at every door, in any order of calls, no tenant sees a word of another one (seed ${seed})`, async () => {
  const report = await soakTenants(slice);
  console.log(lastLine(report));
  expect(failuresOf(report)).toEqual([]);

  // and it really did what it is there for
  expect(report.markedBytes).toBeGreaterThan(100_000);
  for (const door of ['begin', 'seal', 'fork', 'state', 'reuse', 'paged', 'step', 'stored']) {
    expect(report.ends.get(`${door}: done`) ?? 0, door).toBeGreaterThan(10);
  }
});

it(`control: where slots are not wiped, it finds words of others (seed ${seed})`, async () => {
  const report = await soakTenants({ ...slice, goesOn: (rounds) => rounds < 1, withoutScrub: true });
  expect(report.foreignWords).toBeGreaterThan(1000);
});
