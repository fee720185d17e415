/**
 * The command as tests start it: the bundle that users get, built once before the live tests, since it starts in a
 * fraction of the time that the sources take. Outside vitest, in a campaign, it is the sources.
 */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { globSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';

const root: string = join(import.meta.dirname, '..');

/** By this variable vitest's main process tells the tests' processes what it built. */
const variable = 'TIERKV_TEST_COMMAND';

/** The file that Node runs as `tierkv`. */
export const main: string = process.env[variable] ?? join(root, 'src', 'cli', 'main.ts');

/**
 * Called by vitest before the live tests, once for each project of them. What is there already and is the same stays, so that
 * another run of tests on the same sources keeps its command.
 */
export default function build(): void {
  if (process.env[variable] !== undefined) return;
  const out = join(root, '.built');
  const fresh = join(root, `.built/fresh-${process.pid}`);
  const program = [join(root, 'tools', 'build.ts'), '--programs', '--out', fresh];
  execFileSync(process.execPath, program, { stdio: ['ignore', 'ignore', 'inherit'] });
  for (const part of readdirSync(fresh)) {
    if (contentOf(join(fresh, part)) === contentOf(join(out, part))) continue;
    rmSync(join(out, part), { recursive: true, force: true });
    renameSync(join(fresh, part), join(out, part));
  }
  rmSync(fresh, { recursive: true, force: true });
  process.env[variable] = join(out, 'cli', 'main.js');
}

/** A digest of the names and bytes of all files of a folder. */
function contentOf(folder: string): string {
  const hash = createHash('sha256');
  for (const name of globSync('**/*', { cwd: folder }).sort()) {
    if (!statSync(join(folder, name)).isFile()) continue;
    hash.update(`${name}\0`).update(readFileSync(join(folder, name)));
  }
  return hash.digest('hex');
}
