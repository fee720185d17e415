/**
 * The slice of the kill -9 campaign that `npm run ci` makes. The whole one: `npm run campaign -- crash`.
 */

import { expect, it } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { killCampaign } from './campaign.ts';

const seed = testSeed(11);
/** A number and not a time, so that the slice is the same on a busy machine. */
const kills = 16;

it(`a store killed at any change of its files starts again with all that it had promised (seed ${seed})`, async () => {
  const report = await killCampaign(kills, seed);
  console.log(
    `kill -9: ${report.kills} kills, ${report.distinct} distinct points, ${report.found} of ${report.expected} records recovered`,
  );
  expect(report.kills).toBe(kills);
  expect(report.distinct).toBeGreaterThan(0.9 * report.kills);
  expect(report.found).toBe(report.expected);
  expect(report.found).toBeGreaterThan(20 * report.kills);
  expect(report.wrong).toBe(0);
});
