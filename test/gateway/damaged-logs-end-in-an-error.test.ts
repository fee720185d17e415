import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { TierKVError } from '../../src/runtime/errors.ts';
import { decideAgain } from '../../src/serve/gateway/decisionLog.ts';
import { compareShadows } from '../../src/serve/gateway/shadows.ts';
import { testSeed } from '../../src/testing/index.ts';
import { Random } from '../fuzz/random.ts';
import { damage } from '../fuzz-inputs/mutate.ts';
import { sized } from '../sized.ts';
import { failingProgram, prefixBundle, recordedRun } from './recordedRun.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-damage-'));
afterAll(() => rmSync(folder, { recursive: true }));
const seed = testSeed(41);

it(`damaged logs end in a result or in an error that a user can mend (TIERKV_SEED=${seed})`, async () => {
  const { lines } = await recordedRun(
    {
      control: { gateway: { policy: 'banded', detector: 'concurrency', maxConcurrency: 2, maxDepth: 3 } },
      queue: { tickUs: 1000, ttlUs: 30_000 },
      policy: failingProgram,
      shadows: [{ name: 'prefix', bundle: prefixBundle }],
    },
    1,
    60,
  );
  const good = `${lines.join('\n')}\n`;
  const log = join(folder, 'log');
  const ends = { whole: 0, different: 0, refused: 0 };
  for (let i = 0; i < sized(80, 250); i++) {
    writeFileSync(log, damage(good, new Random(seed * 1009 + i)).bytes);
    for (const read of [decideAgain, async (path: string) => compareShadows(path, undefined)]) {
      try {
        const result = await read(log);
        if ('differing' in result && result.differing > 0) ends.different++;
        else ends.whole++;
      } catch (error) {
        if (!(error instanceof TierKVError)) throw new Error(`damage ${i}`, { cause: error });
        ends.refused++;
      }
    }
  }
  // damage of all kinds was done
  for (const count of Object.values(ends)) expect(count).toBeGreaterThan(10);
}, 300_000);
