/** The samples of docs/guide/embedding.md and cluster.md compile under what `tsc --init` writes, which is stricter than this checkout. */

import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
mkdirSync(join(root, 'node_modules', '.cache'), { recursive: true });
const dir = mkdtempSync(join(root, 'node_modules', '.cache', 'docs-'));
afterAll(() => rmSync(dir, { recursive: true }));

it('all samples that are whole modules', async () => {
  const page = ['embedding.md', 'cluster.md']
    .map((name) => readFileSync(join(root, 'docs', 'guide', name), 'utf8'))
    .join('\n');
  const samples = [...page.matchAll(/```ts\n([\s\S]*?)```/g)].flatMap(([, code = '']) =>
    /^export /m.test(code) ? [code] : [],
  );
  expect(samples.length).toBeGreaterThan(5);
  for (const [i, code] of samples.entries()) writeFileSync(join(dir, `sample${i}.mts`), code);
  const options = {
    ...{ module: 'nodenext', target: 'esnext', types: ['node', '@webgpu/types'], strict: true },
    ...{ noUncheckedIndexedAccess: true, exactOptionalPropertyTypes: true, verbatimModuleSyntax: true },
    ...{ isolatedModules: true, skipLibCheck: true, noEmit: true, allowImportingTsExtensions: true },
    paths: {
      tierkv: [join(root, 'src/index.ts')],
      'tierkv/sim': [join(root, 'src/policy/index.ts')],
      'tierkv/node-llama-cpp': [join(root, 'src/adapters/llama/index.ts')],
      'tierkv/*': ['', 'adapters/'].map((room) => join(root, `src/${room}*/index.ts`)),
    },
  };
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, include: ['*.mts'] }));
  const tsc = join(root, 'node_modules', '.bin', 'tsc');
  const output = await new Promise<string>((resolve) => {
    execFile(tsc, ['-p', dir, '--pretty', 'false'], { cwd: dir, maxBuffer: 2 ** 26 }, (_, stdout, stderr) =>
      resolve(stdout + stderr),
    );
  });
  // The sources themselves are held to the options of this checkout, and seen by users as declarations.
  const ofSamples = output
    .split('\n')
    .filter((line) => /^sample\d+\.mts|Cannot find module|TS5\d\d\d/.test(line));
  expect(ofSamples).toEqual([]);
});
