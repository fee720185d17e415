/** A slice of the faults in virtual time. The whole: `npm run campaign -- faults`. */

import { expect, it } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { sized } from '../sized.ts';
import { FaultAccounts } from './accounts.ts';
import { kindTable, lastLine, runCampaign, silentInReport } from './campaign.ts';
import { FaultWorld } from './faultWorld.ts';

const seed = testSeed(20_261);
const faults = Number(process.env.TIERKV_FAULTS ?? sized(1_500, 3_000));

it(`${faults} injected faults: no wrong block, no hang, no leaked slot, and every kind is noticed (seed ${seed})`, async () => {
  const report = await runCampaign(faults, seed);
  console.log(`${kindTable(report)}\n${lastLine(report)}`);
  expect(report.failures).toEqual([]);
  expect(report.accounts.violations).toEqual([]);
  expect([report.wrongBlocks, report.hangs, report.leakedSlots]).toEqual([0, 0, 0]);
  expect(silentInReport(report)).toEqual([]);
  expect(report.reads).toBeGreaterThan(faults);
  for (const kind of ['EIO', 'ENOSPC', 'EMFILE', 'outOfMemory', 'deviceLost'] as const) {
    const { fired, noticed } = report.accounts.kinds[kind];
    expect(noticed, `${kind} is reported by the store, so it is always noticed`).toBe(fired);
  }
});

it(`control: without verification the same campaign finds wrong blocks (seed ${seed})`, async () => {
  const report = await runCampaign(sized(500, 1_000), seed, false);
  expect(report.wrongBlocks).toBeGreaterThan(10);
  expect(report.accounts.violations.some((line) => line.includes('passed for right in HBM'))).toBe(true);
});

// an evicted block came back into a lower tier to which another copy of it was on its way
it.each([11_000_079])('world %i, which once broke an invariant, comes to its end', async (seedOfWorld) => {
  const accounts = new FaultAccounts();
  const report = await FaultWorld.run(seedOfWorld, accounts, true, () => accounts.fired >= 400);
  expect([report.wrongBlocks, report.leakedSlots]).toEqual([0, 0]);
  expect(report.reads).toBeGreaterThan(10_000);
});

it('the same seed gives the same campaign', async () => {
  const [first, second] = [await runCampaign(400, seed), await runCampaign(400, seed)];
  expect(second.accounts.kinds).toEqual(first.accounts.kinds);
  expect([second.steps, second.reads, second.requests]).toEqual([first.steps, first.reads, first.requests]);
});
