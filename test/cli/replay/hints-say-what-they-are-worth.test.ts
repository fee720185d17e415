/** `--what-if-hints`: its rows lie where they must, and what is asked wrongly is one error. */

import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { parseStudyRun, type RawStudyOptions, renderStudy, runStudy } from '../../../src/cli/replay/study.ts';
import { replayDefaults } from '../../../src/cli/replay/words.ts';
import { HintedCache } from '../../../src/studies/replay/hintedCache.ts';
import { chainsOf, Optimum, PoolStudy } from '../../../src/studies/replay/study.ts';
import { Random } from '../../fuzz/random.ts';
import { endOf } from '../printed.ts';

const excerpt = fileURLToPath(
  new URL('../../../data/mooncake-conversation-excerpt.jsonl.gz', import.meta.url),
);
const seed = Number(process.env.TIERKV_POLICY_SEED ?? 55_04);
const { signal } = new AbortController();

function parsed(change: Partial<RawStudyOptions>) {
  const run = parseStudyRun({ ...replayDefaults, blockTokens: '', ddr: '0', nvme: '0', ...change });
  if (run === undefined) throw new Error('a study was asked for');
  return run;
}

it('the worth of hints falls with their accuracy, and hazard stands beside hints of 70 to 80 %', async () => {
  const run = parsed({ whatIfHints: '1,0.9,0.8,0.7', hbm: '1000' });
  const study = await runStudy(excerpt, run, signal);
  const closed = new Map(study.rows.map(({ policy, closedPercent }) => [policy, closedPercent ?? 0]));
  expect([...closed.keys()]).toEqual([
    'lru',
    'hazard',
    'hint 100 %',
    'hint 90 %',
    'hint 80 %',
    'hint 70 %',
    'optimum',
  ]);
  const of = (policy: string): number => closed.get(policy) ?? Number.NaN;
  // the conversation trace at 1,000 blocks (docs/reference/eviction.md), in small
  expect(Math.abs(of('hint 90 %') - 55.7)).toBeLessThan(6);
  expect(Math.abs(of('hint 80 %') - 39)).toBeLessThan(8);
  expect(Math.abs(of('hint 70 %') - 28)).toBeLessThan(6);
  expect(of('hint 100 %')).toBeGreaterThan(of('hint 90 %') + 5);
  expect(of('hazard')).toBeLessThan(of('hint 80 %'));
  expect(renderStudy(study)).toContain('hint 90 %');
  const again = await runStudy(excerpt, run, signal);
  expect(again.rows.map(({ hits }) => hits)).toEqual(study.rows.map(({ hits }) => hits));
});

it(`no hint finds more than the optimum, nor more than there is (seed ${seed})`, () => {
  const random = new Random(seed);
  for (let round = 0; round < 20; round++) {
    let next = 1;
    const chats = Array.from({ length: 10 }, () => [0]);
    const requests = Array.from({ length: 200 }, (_, i) => {
      const chat = random.pick(chats);
      for (let more = random.between(0, 2); more > 0; more--) chat.push(next++);
      if (random.chance(0.1)) chat.length = 1;
      const runs = Int32Array.from(chat.flatMap((id) => [id, 1]));
      return { prompt: { kind: 'blocks', namespace: '', runs }, arrivalUs: i * 1e6 };
    });
    const trace = chainsOf(requests as unknown as Parameters<typeof chainsOf>[0], 512);
    const cache = new HintedCache(trace);
    const optimum = new Optimum(trace);
    const everything = optimum.hits(trace.blocks);
    for (const accuracy of [1, 0.8, 0.5]) {
      const capacity = random.between(1, 60);
      expect(cache.hits(capacity, accuracy)).toBeLessThanOrEqual(optimum.hits(capacity));
      expect(cache.hits(trace.blocks, accuracy)).toBe(everything);
      expect(cache.hits(capacity, accuracy)).toBe(cache.hits(capacity, accuracy));
    }
    const lru = new PoolStudy(trace, { capacity: trace.blocks, eviction: { policy: 'lru' } });
    lru.advance(trace.lookups + 1);
    expect(lru.result().hits).toBe(everything);
  }
});

it.each([
  [['--what-if-hints', '0.9,1.2'], /--what-if-hints has "1.2", not an accuracy.*0.5 .a coin. to 1/],
  [['--what-if-hints', 'good'], /--what-if-hints has "good"/],
  [
    ['--nvme', 'all', '--what-if-hints', '0.9'],
    /--what-if-hints compares nothing where a tier holds all blocks/,
  ],
])('%j is refused', async (words, says) => {
  const { status, stderr } = await endOf(['replay', excerpt, ...words]);
  expect(status).not.toBe(0);
  expect(stderr).toMatch(says);
});
