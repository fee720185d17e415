/**
 * Makes the API reference from the docstrings of every door of the package, by TypeDoc: `npm run reference`, then
 * `reference/index.html`. A link in a docstring that leads nowhere ends it with an error.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { doors } from '../../test/package/doors.ts';

const here = import.meta.dirname;
const root = resolve(here, '../..');
const entryPoints = doors().map(({ file }) => join(root, file));

const folder = mkdtempSync(join(tmpdir(), 'tierkv-reference-'));
try {
  const options = join(folder, 'typedoc.json');
  writeFileSync(
    options,
    JSON.stringify({
      name: 'tierkv',
      entryPoints,
      tsconfig: join(root, 'tsconfig.json'),
      out: join(root, 'reference'),
      readme: join(root, 'README.md'),
      excludePrivate: true,
      excludeInternal: true,
      skipErrorChecking: true, // `npm run typecheck` does it, with the project's own TypeScript
      validation: { notExported: false, invalidLink: true, invalidPath: false },
      treatValidationWarningsAsErrors: true,
    }),
  );
  execFileSync(process.execPath, [join(here, 'node_modules/typedoc/bin/typedoc'), '--options', options], {
    stdio: 'inherit',
  });
} finally {
  rmSync(folder, { recursive: true });
}
