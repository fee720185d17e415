/**
 * Makes the packages of this folder's package.json importable from the whole repository: a link in `node_modules` to each of
 * them. What they need themselves is found beside them. A package that `npm ci` installed is left as it is.
 */

import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

const root = join(import.meta.dirname, '..', '..');
const { dependencies } = JSON.parse(readFileSync(join(import.meta.dirname, 'package.json'), 'utf8')) as {
  readonly dependencies: Readonly<Record<string, string>>;
};

for (const name of Object.keys(dependencies)) {
  const at = join(root, 'node_modules', name);
  if (existsSync(at)) continue;
  rmSync(at, { force: true }); // a link to an earlier checkout
  mkdirSync(dirname(at), { recursive: true });
  symlinkSync(relative(dirname(at), join(import.meta.dirname, 'node_modules', name)), at);
}
console.log(`${Object.keys(dependencies).length} packages linked into node_modules`);
