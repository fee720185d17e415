/** The published results of the full trace on every row of tiers, on real tiers too: `npm run campaign -- truth`. */

import { join } from 'node:path';
import { runAttached } from '../../attachedProcess.ts';

const root = join(import.meta.dirname, '../../..');
const vitest = join(root, 'node_modules/vitest/vitest.mjs');
process.exitCode = await runAttached([vitest, 'run', 'test/cli/replay/groundTruth.test.ts'], {
  cwd: root,
  env: { ...process.env, TIERKV_TRUTH: 'all' },
});
