/** The same manager on a real device and on a virtual clock, under pressure in every tier. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseReplayOptions } from '../../../src/cli/replay/parseOptions.ts';
import { replayDefaults } from '../../../src/cli/replay/words.ts';
import type { ReplayReport } from '../../../src/studies/replay/report.ts';
import { runReplay } from '../../../src/studies/replay/run.ts';
import { sized } from '../../sized.ts';

const trace = fileURLToPath(new URL('../../../data/mooncake-conversation-excerpt.jsonl.gz', import.meta.url));
const dir = mkdtempSync(join(tmpdir(), 'tierkv-parity-'));
afterAll(() => rmSync(dir, { recursive: true }));

const pressures = {
  'tiers that all overflow': { hbm: '100', ddr: '300', nvme: '900' },
  'requests larger than HBM': { hbm: '20', ddr: '200', nvme: '600' },
  'no host memory': { hbm: '100', ddr: '0', nvme: '900' },
  'early offloading': { hbm: '300', ddr: '300', nvme: '300', offloadThreshold: '0.5' },
};

function replay(options: Record<string, string>): Promise<ReplayReport> {
  const raw = {
    ...replayDefaults,
    blockBytes: '512',
    requests: sized('200', '400'),
    skipBad: false,
    dir,
    ...options,
  };
  const signal = new AbortController().signal;
  return runReplay(
    parseReplayOptions(options.inputs === undefined ? trace : undefined, raw, () => dir),
    { signal, notice: () => {}, progress: () => {} },
  );
}

describe.each(Object.entries(pressures))('with %s', (name, tiers) => {
  const log = (run: string): string => join(dir, `${name.replaceAll(' ', '-')}-${run}.log`);
  let real: ReplayReport;

  beforeAll(async () => {
    real = await replay({ ...tiers, log: log('real') });
  });

  it('every block that comes back is the right one', () => {
    expect(real.verified).toBe(real.hits.hbm + real.hits.ddr + real.hits.nvme);
    expect(real.hits.hbm).toBeGreaterThan(0);
    expect(real.verifyFailures).toBe(0);
    expect(real.demotions.dropped).toBeGreaterThan(0);
  });

  it('the recorded inputs of the real run give a byte-identical decision log on the modeled driver', async () => {
    const again = await replay({ ...tiers, driver: 'modeled', inputs: log('real'), log: log('again') });
    expect(readFileSync(log('again')).equals(readFileSync(log('real')))).toBe(true);
    expect(again).toMatchObject({
      hits: real.hits,
      hitDigest: real.hitDigest,
      decisionDigest: real.decisionDigest,
    });
  });

  it('the modeled driver running free takes the same decisions', async () => {
    const free = await replay({ ...tiers, driver: 'modeled' });
    expect(free).toMatchObject({
      hits: real.hits,
      demotions: real.demotions,
      hitDigest: real.hitDigest,
      decisionDigest: real.decisionDigest,
    });
  });
});
