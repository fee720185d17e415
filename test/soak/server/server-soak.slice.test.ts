/** The slice of the server's soak that `npm run ci` makes. The whole: `npm run campaign -- soak server`. */

import { expect, it } from 'vitest';
import { testSeed } from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { quantile } from './beginTimes.ts';
import { soakServer } from './campaign.ts';
import { failuresOf, growthsOf, lastLine } from './report.ts';

const seed = testSeed(4);
const MIB = 1024 * 1024;
const rounds = sized(2, 3);
const slice = { seed, requestsPerRound: 250, diskBytesPerS: MIB };

it(`64 clients on 188 blocks over a slow disk: lost devices, clients that leave, nothing wrong or held (seed ${seed})`, async () => {
  const report = await soakServer({ ...slice, goesOn: (done) => done < rounds, lossShare: 1 });
  console.log(lastLine(report));
  expect(failuresOf(report)).toEqual([]);

  // and it really did what it is there for
  const { served, compared, times, counters, devicesLost } = report;
  expect(served.requests).toBeGreaterThanOrEqual(250 * rounds);
  expect(served.answered + served.disconnected).toBe(served.requests);
  expect(served.disconnected).toBeGreaterThan(10 * rounds);
  expect(devicesLost).toBe(rounds);
  expect(times.waitingMost, 'clients waited for room').toBeGreaterThan(5);
  expect(compared.tokensCompared).toBeGreaterThan(33_000 * rounds);
  expect(compared.found, 'KV of earlier turns was used').toBeGreaterThan(3300 * rounds);
  expect(counters['hits.ddr']).toBeGreaterThan(60 * rounds);
  expect(counters['writtenBytes.nvme']).toBeGreaterThan(0);
  expect(counters.demotionsSkipped, 'the disk did not keep up').toBeGreaterThan(0);
});

it('control: KV that was written wrong once in five hundred times is found', async () => {
  const report = await soakServer({ ...slice, goesOn: (rounds) => rounds < 1, lossShare: 0, spoiled: 0.002 });
  expect(report.compared.wrongTokens).toBeGreaterThan(10);
  expect(failuresOf(report)[0]).toMatch(/KV of \d+ tokens was wrong/);
});

it('the verdict tells growing memory from memory that comes and goes', () => {
  const sample = { externalBytes: 0, arrayBuffersBytes: 0, fds: 1, threads: 1, requests: 0 };
  const samples = (rss: (i: number) => number) =>
    Array.from({ length: 40 }, (_, i) => ({
      ...sample,
      minutes: i / 4,
      heapUsedBytes: 20 * MIB,
      rssBytes: rss(i),
    }));
  const growing = (rss: (i: number) => number): string[] =>
    growthsOf(samples(rss))
      .filter(({ leaks }) => leaks)
      .map(({ what }) => what);
  expect(growing((i) => 300 * MIB + i * MIB)).toEqual(['RSS']);
  expect(growing((i) => 300 * MIB + (i % 7) * MIB)).toEqual([]);
  expect(growing((i) => 300 * MIB - i * MIB)).toEqual([]);
  expect(growthsOf(samples(() => 0).slice(0, 5))[0].slope, 'too few to say').toBe(undefined);
});

it('a quantile is one of the samples', () => {
  const samples = Array.from({ length: 100 }, (_, i) => 100 - i);
  expect([quantile(samples, 0.5), quantile(samples, 0.99), quantile([7], 0.99)]).toEqual([51, 100, 7]);
  expect(quantile([], 0.5)).toBeNaN();
});
