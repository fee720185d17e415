/** A slice of the load on the example server: `npm run campaign -- server` goes on for as long as it is told to. */

import { afterAll, expect, it } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { removeStateDirectories } from '../examples/server/liveServer.ts';
import { sized } from '../sized.ts';
import { serverLoad } from './campaign.ts';

afterAll(removeStateDirectories);

it('mixed traffic with clients that leave: no wrong answer, nothing is held, reloads happen', async () => {
  const seed = testSeed(1);
  const report = await serverLoad({
    seed,
    clients: 24,
    answers: sized(32, 150),
    kinds: sized(12, 24),
    sees: ['left', 'whole', 'streamed', 'reloads', 'preemptions'],
    sampleEveryMs: 1000,
  });
  const hint = `seed ${seed}: ${JSON.stringify(report.counts)}`;
  expect(report.problems, hint).toEqual([]);
  expect(report.counts.left, hint).toBeGreaterThan(0);
  expect(report.counts.whole, hint).toBeGreaterThan(0);
  expect(report.counts.streamed, hint).toBeGreaterThan(0);
  expect(report.reloads, hint).toBeGreaterThan(0);
  expect(report.preemptions, hint).toBeGreaterThan(0);
}, 300_000);

it.each(['sentence-piece', 'word-piece'] as const)(
  'texts of a %s tokenizer: no wrong answer',
  async (tokenizer) => {
    const seed = testSeed(2);
    const report = await serverLoad({
      seed,
      clients: 12,
      tokenizer,
      answers: sized(14, 60),
      kinds: sized(6, 24),
      sees: ['left', 'streamed'],
      sampleEveryMs: 1000,
    });
    const hint = `seed ${seed}: ${JSON.stringify(report.counts)}`;
    expect(report.problems, hint).toEqual([]);
    expect(report.counts.left, hint).toBeGreaterThan(0);
    expect(report.counts.streamed, hint).toBeGreaterThan(0);
  },
  300_000,
);
