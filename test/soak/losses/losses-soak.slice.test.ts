/** The slice of the soak under losses that `npm run ci` makes. The whole: `npm run campaign -- soak losses`. */

import { expect, it } from 'vitest';
import { testSeed } from '../../../src/testing/index.ts';
import { failuresOf, lastLine, soakLosses } from './campaign.ts';

const seed = testSeed(3);
const slice = { seed, requestsPerRound: 200, callsPerDevice: 100, goesOn: (rounds: number) => rounds < 2 };

it(`64 clients and a scheduler while devices are lost: nothing wrong, hung or refused (seed ${seed})`, async () => {
  const report = await soakLosses(slice);
  console.log(lastLine(report));
  expect(failuresOf(report)).toEqual([]);

  // and it really did what it is there for
  const { served, compared, devicesLost } = report;
  expect(devicesLost).toBeGreaterThan(4);
  expect(compared.tokens).toBeGreaterThan(5000);
  for (const call of ['append', 'truncate', 'fork', 'seal', 'nextPart', 'readyLayers', 'stepEnded']) {
    for (const end of ['done', 'interrupted']) {
      expect(served.ends.get(`${call}: ${end}`), `${call}: ${end}`).toBeGreaterThan(0);
    }
  }
  const visits = (door: string): number =>
    [...served.ends].filter(([end]) => end.startsWith(`${door}:`)).reduce((sum, [, times]) => sum + times, 0);
  for (const door of ['reuse', 'paged', 'state', 'storage']) expect(visits(door), door).toBeGreaterThan(0);
});

it('control: with the rule taken out, sealed blocks that were never written are found', async () => {
  let wrong = 0;
  const report = await soakLosses({
    ...slice,
    // Which round meets the moment is up to the device; most do.
    goesOn: (rounds) => rounds < 12 && wrong === 0,
    withoutTheRule: true,
    progress: ({ compared }) => {
      wrong = compared.wrongTokens;
    },
  });
  expect(report.compared.wrongTokens).toBeGreaterThan(0);
  expect(failuresOf(report)[0]).toMatch(/KV of \d+ tokens was wrong/);
  // rounds are bounded above, and a busy machine may need the time of most of them
}, 1_800_000);
