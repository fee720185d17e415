/**
 * Makes the API reference from the docstrings of every door of the package, by TypeDoc: `npm run reference`, then
 * `reference/index.html`. A link in a docstring that leads nowhere ends it with an error.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const here = import.meta.dirname;
const root = resolve(here, '../..');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
};
const entryPoints = Object.values(manifest.exports).flatMap((door) =>
  typeof door === 'string' ? [] : [join(root, door.types.replace('./dist/', 'src/').replace('.d.ts', '.ts'))],
);

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
