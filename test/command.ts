/**
 * The command as tests start it: the bundle that users get, built once before the live tests, since it starts in a
 * fraction of the time that the sources take. Outside vitest, in a campaign, it is the sources.
 */

import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

const root: string = join(import.meta.dirname, '..');

/** By this variable vitest's main process tells the tests' processes what it built. */
const variable = 'TIERKV_TEST_COMMAND';

/** The file that Node runs as `tierkv`. */
export const main: string = process.env[variable] ?? join(root, 'src', 'cli', 'main.ts');

/** Called by vitest before the live tests, once for each project of them. */
export default function build(): void {
  if (process.env[variable] !== undefined) return;
  const out = join(root, '.built');
  const program = [join(root, 'tools', 'build.ts'), '--programs', '--out', out];
  execFileSync(process.execPath, program, { stdio: ['ignore', 'ignore', 'inherit'] });
  process.env[variable] = join(out, 'cli', 'main.js');
}
