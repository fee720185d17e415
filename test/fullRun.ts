/** All tests, or those of some files, at full size: `npm run campaign -- full [FILES]`. */

import { join } from 'node:path';
import { runAttached } from './attachedProcess.ts';

process.exitCode = await runAttached(['node_modules/vitest/vitest.mjs', 'run', ...process.argv.slice(2)], {
  cwd: join(import.meta.dirname, '..'),
  env: { ...process.env, TIERKV_FULL: '1' },
});
