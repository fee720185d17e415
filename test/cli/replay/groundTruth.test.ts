/**
 * The published results of the full conversation trace: what each tier served, what moved, which request hit
 * how much. The trace is not part of the package; without it these tests say so and do not run. On real tiers one row
 * takes two minutes of a core: `npm run campaign -- truth` runs all of them. `npm test` runs the row that drops blocks on the
 * modeled driver, and its first requests on real tiers, compared with the modeled driver.
 */

import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { parseReplayOptions } from '../../../src/cli/replay/parseOptions.ts';
import { replayDefaults } from '../../../src/cli/replay/words.ts';
import type { ReplayReport } from '../../../src/studies/replay/report.ts';
import { runReplay } from '../../../src/studies/replay/run.ts';
import { isFull } from '../../sized.ts';

const trace = fileURLToPath(
  new URL('../../../../shared/traces/mooncake-fast25/conversation_trace.jsonl.gz', import.meta.url),
);
const present = existsSync(trace);
if (!present)
  console.warn('SKIPPED: the full conversation trace is not here (shared/traces/mooncake-fast25)');

const rows = [
  {
    tiers: ['1000', '5000', 'all'],
    hits: { hbm: 12_847, ddr: 27_336, nvme: 65_527 },
    demotions: { hbmToDdr: 274_653, ddrToNvme: 242_317, dropped: 0 },
    hitDigest: '5714d19e169c758ffc4237ea8d319fa331905bd40b1e01911464a2fa8d1b6e69',
  },
  {
    tiers: ['10000', '30000', '100000'],
    hits: { hbm: 61_046, ddr: 40_336, nvme: 4_187 },
    demotions: { hbmToDdr: 217_454, ddrToNvme: 147_118, dropped: 42_931 },
  },
  {
    tiers: ['500', '2000', '8000'],
    hits: { hbm: 12_168, ddr: 4_806, nvme: 45_100 },
    demotions: { hbmToDdr: 275_832, ddrToNvme: 269_026, dropped: 215_926 },
  },
] as const;

/** One tier alone gives the digests of the canonical LRU. */
const single = [
  { blocks: '1000', digest: 'a5dbd0dfe355b6e3bd5974758173795864feb38e4ae8c7eee80846a17d68e03c' },
  { blocks: '10000', digest: '68620dcfe80a2e59cd8c8ded299df18bb253150374c89851ea075bd7d2a5cdcc' },
];

/** Requests that fill these tiers and drop blocks. */
const firstRequests = '600';
const firstTiers = ['500', '2000', '4000'] as const;

const dir = mkdtempSync(join(tmpdir(), 'tierkv-truth-'));
afterAll(() => rmSync(dir, { recursive: true }));

function replay(
  driver: string,
  [hbm, ddr, nvme]: readonly [string, string, string],
  requests?: string,
): Promise<ReplayReport> {
  const raw = {
    ...replayDefaults,
    driver,
    policy: 'lru',
    hbm,
    ddr,
    nvme,
    blockBytes: '64',
    skipBad: false,
    dir,
    ...(requests === undefined ? {} : { requests }),
  };
  const signal = new AbortController().signal;
  return runReplay(
    parseReplayOptions(trace, raw, () => dir),
    { signal, notice: () => {}, progress: () => {} },
  );
}

const decisions = new Map<string, string>();

describe.runIf(present).each(isFull ? ['modeled', 'real'] : ['modeled'])('on the %s driver', (driver) => {
  it.each(isFull ? rows : rows.slice(2))(
    'tiers of $tiers serve and move what is published',
    { timeout: 400_000 },
    async (row) => {
      const report = await replay(driver, row.tiers);
      expect(report).toMatchObject({
        requests: 12_031,
        blockLookups: 288_500,
        hits: row.hits,
        demotions: row.demotions,
      });
      expect(report.verifyFailures).toBe(0);
      if ('hitDigest' in row) expect(report.hitDigest).toBe(row.hitDigest);
      if (driver === 'real') expect(report.verified).toBe(Object.values(row.hits).reduce((a, b) => a + b, 0));
      const key = row.tiers.join('/');
      expect(report.decisionDigest).toBe(decisions.get(key) ?? report.decisionDigest);
      decisions.set(key, report.decisionDigest);
    },
  );
});

describe.runIf(present)('real tiers', () => {
  it('serve and move on the first requests what the modeled driver does, bytes and all', async () => {
    const modeled = await replay('modeled', firstTiers, firstRequests);
    const real = await replay('real', firstTiers, firstRequests);
    const { hits, demotions, hitDigest, decisionDigest } = modeled;
    expect(real).toMatchObject({ hits, demotions, hitDigest, decisionDigest, verifyFailures: 0 });
    expect(real.verified).toBe(Object.values(hits).reduce((a, b) => a + b, 0));
    for (const [what, count] of Object.entries({ ...hits, ...demotions })) {
      expect(count, what).toBeGreaterThan(0);
    }
  });
});

describe.runIf(present)('one tier alone', () => {
  it.each(isFull ? single : single.slice(0, 1))(
    'of $blocks blocks hits request by request as the canonical LRU',
    async ({ blocks, digest }) => {
      expect((await replay('modeled', [blocks, '0', '0'])).hitDigest).toBe(digest);
    },
  );
});
