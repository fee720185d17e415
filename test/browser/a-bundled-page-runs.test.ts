/**
 * A page over `tierkv/browser` as each bundler makes it with its documented line, and as it runs in Chromium: blocks in host
 * memory and, in the page's own thread, in files. The door is built as `npm run build` builds it.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import esbuild from 'esbuild';
import { rolldown } from 'rolldown';
import { build as viteBuild } from 'vite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildForBrowsers } from '../../tools/browserBuild.ts';
import { servePages } from '../../tools/browserPages.ts';
import { hasExtra } from '../extras.ts';
import { chromiumProblem, openProfile } from './browser.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: bundled pages: ${problem}\n`);

const program = `
import { kvLayout, openInBrowser } from 'tierkv/browser';

// what goes wrong ends the test at once
const problem = (error) => { document.body.dataset.found = error.message; };
const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 32, dtype: 'f32', blockTokens: 16 });
try {
const kv = await openInBrowser({
  layout,
  model: 'bundled',
  secretKey: new Uint8Array(32),
  ddrBytes: 6 * layout.blockBytes,
  nvme: { dir: 'bundled', bytes: 32 * layout.blockBytes },
});
const tokens = (seed) => Array.from({ length: 65 }, (_, i) => 1000 * seed + i);
for (let seed = 1; seed < 4; seed++) {
  const sequence = await kv.begin(tokens(seed), { tenant: 'page' });
  for (const { index } of kv.openBlocks(sequence)) kv.writeBlock(sequence, index, (bytes) => bytes.fill(seed));
  await kv.seal(sequence);
  kv.release(sequence);
}
await kv.save();
const found = [];
for (let seed = 1; seed < 4; seed++) {
  const sequence = await kv.begin(tokens(seed), { tenant: 'page' });
  found.push(sequence.cachedTokens, (await kv.readBlock(sequence, 0))[5]);
  kv.release(sequence);
}
await kv.close();
document.body.dataset.found = found.join();
} catch (error) { problem(error); }
`;

type Bundler = (main: string, dir: string) => Promise<unknown>;

const bundlers: Readonly<Record<string, Bundler>> = {
  esbuild: (main, dir) =>
    esbuild.build({
      entryPoints: [main],
      outdir: dir,
      bundle: true,
      splitting: true,
      format: 'esm',
      minify: true,
      logLevel: 'silent',
    }),
  rolldown: async (main, dir) => {
    const bundle = await rolldown({ input: main, platform: 'browser' });
    await bundle.write({ dir, format: 'esm', minify: true });
    await bundle.close();
  },
  vite: (main, dir) =>
    viteBuild({
      root: join(main, '..'),
      configFile: false,
      logLevel: 'silent',
      build: {
        outDir: dir,
        target: 'es2022',
        rolldownOptions: { input: main, output: { entryFileNames: 'main.js' } },
      },
    }),
  webpack: async (main, dir) => {
    const { default: webpack } = await import('webpack');
    return new Promise((resolve, reject) => {
      webpack(
        {
          mode: 'production',
          optimization: { minimize: false },
          target: ['web', 'es2022'],
          entry: main,
          experiments: { outputModule: true },
          output: {
            path: dir,
            filename: 'main.js',
            module: true,
            chunkFormat: 'module',
            chunkLoading: 'import',
          },
          performance: false,
        },
        (error, stats) => {
          if (error !== null) reject(error);
          else if (stats?.hasErrors() === true) reject(new Error(stats.toString('errors-only')));
          else resolve(undefined);
        },
      );
    });
  },
};

const hasWebpack = hasExtra('webpack', 'a page that webpack makes');
const made = Object.keys(bundlers).filter((name) => name !== 'webpack' || hasWebpack);

describe.skipIf(problem !== undefined)('a bundled page', () => {
  const root = mkdtempSync(join(tmpdir(), 'tierkv-bundled-page-'));
  const main = join(root, 'main.mjs');
  let profile: Awaited<ReturnType<typeof openProfile>>;

  beforeAll(async () => {
    const door = join(root, 'node_modules', 'tierkv');
    await buildForBrowsers({ input: { index: 'src/adapters/browser/index.ts' }, dir: door, minify: false });
    const manifest = { name: 'tierkv', type: 'module', exports: { './browser': './index.js' } };
    writeFileSync(join(door, 'package.json'), JSON.stringify(manifest));
    writeFileSync(main, program);
    profile = await openProfile();
  });
  afterAll(async () => {
    await profile?.close();
    rmSync(root, { recursive: true });
  });

  it.each(made)('of %s finds its blocks in memory and files', async (name) => {
    const dir = join(root, name);
    mkdirSync(dir);
    await bundlers[name](main, dir);
    const page =
      '<!doctype html><link rel="icon" href="data:,"><body><script type="module" src="main.js"></script>';
    writeFileSync(join(dir, 'index.html'), page);
    const { url, server } = await servePages(dir, 0);
    const tab = await profile.context.newPage();
    try {
      const problems: string[] = [];
      tab.on('pageerror', ({ message }) => problems.push(message));
      await tab.goto(url);
      const body = tab.locator('body[data-found]');
      await body.waitFor({ state: 'attached', timeout: 240_000 }).catch((error: Error) => {
        throw new Error(`${problems.join('; ')} ${error.message}`);
      });
      expect(await body.getAttribute('data-found')).toBe('64,1,64,2,64,3');
      expect(problems).toEqual([]);
    } finally {
      await tab.close();
      server.close();
    }
  });
});
