/** The slice of the soak that `npm run ci` makes. The whole one: `npm run campaign -- soak`. */

import { expect, it } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { type SoakReport, soak } from './campaign.ts';
import { busyHour } from './hour.ts';
import { verdictOf } from './judging/verdict.ts';
import { lastLine } from './render.ts';

const seed = testSeed(3);
const minutes = 2;
const slice = { seed, roundsPerMinute: 4, roundsPerLife: 3, idleMs: 200 };

it('an hour is what the trace in data/ makes of it', async () => {
  const hour = await busyHour();
  expect(hour.promptBlocks.length).toBe(2000);
  expect(hour.spanSeconds).toBe(669);
  expect(hour.requestsPerHour).toBeCloseTo((2000 / 669) * 3600, 6);
  expect(hour.blocksPerHour).toBeCloseTo((54_559 / 669) * 3600, 6);
  expect(Math.max(...hour.totalBlocks)).toBeLessThan(360);
});

it(`minutes of traffic with lost devices and restarts: no wrong block, and nothing is held at rest (seed ${seed})`, async () => {
  const hour = await busyHour();
  const report: SoakReport = await soak({ ...slice, hour, minutes, lossShare: 0.6 });
  console.log(lastLine(report, verdictOf(report)));
  const { tally, totals, samples } = report;
  expect([tally.wrongBlocks, tally.unreadable, totals.diverged]).toEqual([0, 0, 0]);
  expect(report.unrest).toEqual([]);
  const descriptors = verdictOf(report).growths.find(({ what }) => what === 'descriptors');
  if (process.platform === 'linux') expect(descriptors?.leaks).toBe(false);

  // and it really did what it is there for
  expect(tally.requests).toBeGreaterThan((minutes / 60) * hour.requestsPerHour - 1);
  expect(tally.blocksCompared).toBeGreaterThan(5000);
  expect(report.restarts).toBeGreaterThanOrEqual(2);
  expect(totals.adopted).toBeGreaterThan(0);
  expect(report.devicesLost).toBeGreaterThan(0);
  expect(tally.interrupted).toBeGreaterThan(0);
  for (const link of ['hbmToDdr', 'ddrToHbm', 'ddrToNvme', 'nvmeToHbm']) {
    expect(totals.moved.get(link), link).toBeGreaterThan(100);
  }
  expect(samples.at(-1)!.ready.every((blocks) => blocks > 0)).toBe(true);
});

it('control: wrong bytes that were written into one block of a hundred are found', async () => {
  const report = await soak({
    ...slice,
    hour: await busyHour(),
    minutes: 0.5,
    lossShare: 0,
    spoiled: 0.01,
  });
  expect(report.tally.wrongBlocks).toBeGreaterThan(10);
  expect(verdictOf(report).failures[0]).toMatch(/blocks held wrong bytes/);
});
