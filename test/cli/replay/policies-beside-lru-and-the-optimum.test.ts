/** What `--policy` of a replay says: the table is right, and what is asked wrongly is one error. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import {
  movesBytes,
  parseStudyRun,
  type RawStudyOptions,
  renderStudy,
  runStudy,
} from '../../../src/cli/replay/study.ts';
import { replayDefaults } from '../../../src/cli/replay/words.ts';
import { evictionPolicyNames } from '../../../src/runtime/index.ts';
import { comparePolicies, Optimum, readChains } from '../../../src/studies/replay/study.ts';
import { Random } from '../../fuzz/random.ts';
import { ExclusiveLru } from './exclusiveLru.ts';

const excerpt = fileURLToPath(
  new URL('../../../data/mooncake-conversation-excerpt.jsonl.gz', import.meta.url),
);
const dir = mkdtempSync(join(tmpdir(), 'tierkv-study-'));
afterAll(() => rmSync(dir, { recursive: true }));
const seed = Number(process.env.TIERKV_POLICY_SEED ?? 27_11);
const { signal } = new AbortController();

function raw(change: Partial<RawStudyOptions>): RawStudyOptions {
  return { ...replayDefaults, blockTokens: '', ddr: '0', nvme: '0', ...change };
}

function parsed(change: Partial<RawStudyOptions>) {
  const run = parseStudyRun(raw(change));
  if (run === undefined) throw new Error('a study was asked for');
  return run;
}

/** Paths in a small tree: equal ids are equal prefixes. */
function randomPaths(random: Random, requests: number): number[][] {
  return Array.from({ length: requests }, () => {
    let node = 0;
    return Array.from({ length: random.between(1, 9) }, () => (node = node * 2 + random.below(2) + 1));
  });
}

function traceFile(name: string, paths: readonly (readonly number[])[]): string {
  const lines = paths.map((ids, i) =>
    JSON.stringify({ timestamp: i * 500, input_length: ids.length * 512, output_length: 1, hash_ids: ids }),
  );
  const file = join(dir, name);
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}

describe('the table', () => {
  it(`has the exclusive LRU's hits at every capacity, with lower tiers or without (seed ${seed})`, async () => {
    const random = new Random(seed);
    for (let round = 0; round < 12; round++) {
      const paths = randomPaths(random, 150);
      const trace = readChains(traceFile(`lru-${round}.jsonl`, paths));
      const capacities = [random.between(1, 12), random.between(13, 40)];
      const lower = [random.pick([0, 9]), random.pick([0, 14])] as const;
      const study = await comparePolicies(
        trace,
        { policies: ['hazard'], capacities, lower },
        { signal, progress: () => {} },
      );
      for (const capacity of capacities) {
        const total = capacity + lower[0] + lower[1];
        const oracle = new ExclusiveLru([total]);
        for (const ids of paths) oracle.request(ids);
        const lru = study.rows.find((row) => row.capacity === capacity && row.policy === 'lru');
        const what = `seed ${seed}, round ${round}, ${capacity} over ${lower}`;
        expect(lru?.hits, what).toBe(oracle.report.hits[0]);
        expect(new Optimum(trace).hits(total), what).toBeGreaterThanOrEqual(oracle.report.hits[0]);
      }
    }
  });

  it('has each policy once at each capacity, under the optimum, and the gap that it closes', async () => {
    const run = parsed({ policy: 'all', hbm: '100,800', requests: '400' });
    const shares: number[] = [];
    const study = await comparePolicies(readChains(excerpt, undefined, 400), run, {
      signal,
      progress: (share) => shares.push(share),
    });
    const wanted = [
      'lru',
      ...evictionPolicyNames.filter((name) => name !== 'lru' && name !== 'priority'),
      'optimum',
    ];
    expect(study.rows.map(({ capacity, policy }) => `${capacity} ${policy}`)).toEqual(
      [100, 800].flatMap((capacity) => wanted.map((policy) => `${capacity} ${policy}`)),
    );
    for (const capacity of [100, 800]) {
      const rows = study.rows.filter((row) => row.capacity === capacity);
      const lru = rows[0].hits;
      const best = rows[rows.length - 1].hits;
      expect(best).toBeGreaterThan(lru);
      for (const row of rows) {
        expect(row.hits).toBeLessThanOrEqual(best);
        expect(row.closedPercent).toBeCloseTo((100 * (row.hits - lru)) / (best - lru), 9);
      }
    }
    expect(shares.length).toBeGreaterThan(5);
    expect(shares.at(-1)).toBe(1);
    expect(shares).toEqual([...shares].sort((a, b) => a - b));
    for (const word of [...wanted, 'gap closed %']) expect(renderStudy(study)).toContain(word);
  });

  it('says the same twice, and draws it where it is asked to', async () => {
    const plot = join(dir, 'plot.svg');
    const run = parsed({ policy: 'hazard', hbm: '50,200', requests: '300', plot });
    const studies = [await runStudy(excerpt, run, signal), await runStudy(excerpt, run, signal)];
    const [first, second] = studies.map(({ rows }) => rows.map(({ nsPerBlock: _, ...row }) => row));
    expect(second).toEqual(first);
    const { readFileSync } = await import('node:fs');
    expect(readFileSync(plot, 'utf8')).toMatch(/^<svg[\s\S]*hazard/);
  });

  it('takes sessions in the form of the agent traces', async () => {
    const rows = Array.from({ length: 40 }, (_, i) =>
      JSON.stringify({
        s: `s${i % 4}`,
        a: 0,
        t: i,
        in: 64 * (1 + (i >> 2)),
        out: 1,
        think: 1,
        h: [[0, 1 + (i >> 2)]],
      }),
    );
    const file = join(dir, 'sessions.jsonl');
    writeFileSync(file, `${rows.join('\n')}\n`);
    expect(movesBytes(file, parsed({ policy: 'hazard', hbm: '20' }))).toBe(false);
    const study = await runStudy(file, parsed({ policy: 'optimum', hbm: '4000' }), signal);
    expect(study).toMatchObject({ requests: 40, blockTokens: 64, lookups: 4 * 55 });
    expect(study.rows.map(({ policy, hits }) => [policy, hits])).toEqual([
      ['lru', 4 * 45],
      ['optimum', 4 * 45],
    ]);
  });

  it('stops when the user stops it', async () => {
    const stop = new AbortController();
    stop.abort(new Error('stopped'));
    await expect(runStudy(excerpt, parsed({ policy: 'lru', requests: '50' }), stop.signal)).rejects.toThrow(
      'stopped',
    );
  });
});

describe('what is asked', () => {
  it('of one policy at one capacity runs a replay as well, of anything else the table alone', () => {
    expect(movesBytes(excerpt, parsed({ policy: 'lru' }))).toBe(true);
    for (const change of [{ policy: 'all' }, { policy: 'optimum' }, { policy: 'lru,arc' }, { hbm: '1,2' }]) {
      expect(movesBytes(excerpt, parsed({ policy: 'lru', ...change }))).toBe(false);
    }
    expect(parseStudyRun(raw({}))).toBeUndefined();
  });

  it.each([
    [{ policy: 'hazzard' }, '--eviction', 'Did you mean hazard?'],
    [{ policy: 'optimun' }, '--eviction', 'Did you mean optimum?'],
    [{ policy: 'lru,' }, '--eviction', 'Known: lru'],
    [{ policy: 'all', hbm: '10,x' }, '--hbm', 'whole numbers'],
    [{ policy: 'all', hbm: '0' }, '--hbm', 'from 1'],
    [{ policy: 'all', ddr: '-1' }, '--ddr', 'whole numbers'],
    [{ policy: 'all', nvme: 'all' }, '--eviction', 'Give each tier a number'],
    [{ hbm: '1,2' }, '--hbm', 'Add --eviction all'],
    [{ plot: join(dir, 'x.svg') }, '--plot', 'Add --eviction all'],
    [{ policy: 'all', requests: '0' }, '--num-requests', 'at least 1'],
  ])('%o is refused by %s', (change, option, remedy) => {
    expect(() => parseStudyRun(raw(change))).toThrow(expect.objectContaining({ field: option }));
    expect(() => parseStudyRun(raw(change))).toThrow(remedy);
  });

  it('with --log needs a replay', () => {
    const run = parsed({ policy: 'all', log: join(dir, 'log') });
    expect(() => movesBytes(excerpt, run)).toThrow(/--log needs a replay/);
    expect(movesBytes(excerpt, parsed({ policy: 'lru', log: join(dir, 'log') }))).toBe(true);
  });
});
