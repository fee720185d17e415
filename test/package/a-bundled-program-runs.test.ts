/**
 * A program that a bundler made one file of, tierkv and its shaders in it and native packages beside it, opens a
 * runtime, computes with its kernels and finds its blocks again. The lines for each bundler are those of docs/guide/elsewhere.md.
 */

import { execFile } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import esbuild from 'esbuild';
import { rolldown } from 'rolldown';
import { build as viteBuild } from 'vite';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { shadersInside } from '../../tools/shaderModule.ts';
import { hasExtra } from '../extras.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
// Far from the sources, so that no path up from the bundle leads to the package.
const dir = realpathSync(mkdtempSync(join(tmpdir(), 'tierkv-bundled-')));
afterAll(() => rmSync(dir, { recursive: true }));

const program = `
import { BufferUsage, KVRuntime, kvLayout } from 'tierkv';
import { BlockCopies } from 'tierkv/compute';

const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 64, dtype: 'f16', blockTokens: 16 });
const kv = await KVRuntime.open({
  layout,
  model: 'bundled',
  secretKey: new Uint8Array(32),
  hbmBytes: 16 * layout.blockBytes,
  adapter: 'software',
});
await BlockCopies.open({ device: kv.device, slabs: kv.stores.hbm.slabs, layout, pairsMax: 4 });
const tokens = Array.from({ length: 33 }, (_, i) => i);
const sequence = await kv.begin(tokens, { tenant: 'a' });
await kv.seal(sequence);
kv.release(sequence);
const again = await kv.begin(tokens, { tenant: 'a' });
console.log('cached', again.cachedTokens, BufferUsage.STORAGE);
kv.release(again);
await kv.close();
`;

/** What the package has natively, and what may be absent. */
const external = ['webgpu', 'koffi', 'quickjs-emscripten', '@valkey/valkey-glide'];
const main = join(dir, 'main.mjs');

// the doors as users get them: the same bundler as tools/build.ts, in far less time than the whole package takes
beforeAll(async () => {
  const tierkv = join(dir, 'node_modules', 'tierkv');
  const doors = { index: join(root, 'src/index.ts'), compute: join(root, 'src/compute/index.ts') };
  const build = await rolldown({
    input: doors,
    platform: 'node',
    external: [...external, 'commander', 'yaml'],
    plugins: [shadersInside(true)],
  });
  await build.write({ dir: tierkv, format: 'esm', entryFileNames: '[name].js' });
  await build.close();
  writeFileSync(
    join(tierkv, 'package.json'),
    JSON.stringify({
      name: 'tierkv',
      type: 'module',
      exports: { '.': './index.js', './compute': './compute.js' },
    }),
  );
  for (const name of ['webgpu', 'koffi', 'commander', 'yaml', '@koromix', '@sparticuz']) {
    symlinkSync(join(root, 'node_modules', name), join(dir, 'node_modules', name));
  }
  writeFileSync(main, program);
});

const bundlers: Readonly<Record<string, (out: string) => Promise<unknown>>> = {
  esbuild: (out) =>
    esbuild.build({
      entryPoints: [main],
      outfile: join(out, 'app.mjs'),
      bundle: true,
      platform: 'node',
      format: 'esm',
      external,
      // for the packages of CommonJS inside
      banner: {
        js: "import { createRequire as r } from 'node:module'; const require = r(import.meta.url);",
      },
      logLevel: 'silent',
    }),
  rolldown: async (out) => {
    const bundle = await rolldown({ input: main, platform: 'node', external });
    await bundle.write({ file: join(out, 'app.mjs'), format: 'esm', codeSplitting: false });
    await bundle.close();
  },
  vite: (out) =>
    viteBuild({
      root: dir,
      configFile: false,
      logLevel: 'silent',
      ssr: { external, noExternal: true },
      build: {
        ssr: main,
        outDir: out,
        target: 'node22',
        rollupOptions: { output: { entryFileNames: 'app.mjs', codeSplitting: false } },
      },
    }),
  webpack: async (out) => {
    const { default: webpack } = await import('webpack');
    return new Promise((resolve, reject) => {
      const compiler = webpack({
        entry: main,
        target: 'node22',
        mode: 'production',
        experiments: { outputModule: true },
        module: { parser: { javascript: { importMeta: false, createRequire: false } } },
        externalsType: 'module-import',
        externals: external,
        output: { path: out, filename: 'app.mjs', module: true, chunkFormat: 'module' },
        optimization: { minimize: false },
        plugins: [new webpack.optimize.LimitChunkCountPlugin({ maxChunks: 1 })],
      });
      compiler.run((error, stats) => {
        compiler.close(() => {});
        if (error) reject(error);
        else if (stats?.hasErrors()) reject(new Error(stats.toString({ all: false, errors: true })));
        else resolve(stats);
      });
    });
  },
};

const hasWebpack = hasExtra('webpack', 'a program that webpack makes');
const made = Object.keys(bundlers).filter((name) => name !== 'webpack' || hasWebpack);

it.each(made)('built by %s', async (name) => {
  const out = join(dir, name);
  await bundlers[name](out);
  expect(readdirSync(out)).toEqual(['app.mjs']);
  mkdirSync(join(out, 'node_modules'));
  for (const native of ['webgpu', 'koffi', '@koromix', '@sparticuz']) {
    symlinkSync(join(root, 'node_modules', native), join(out, 'node_modules', native));
  }
  const { stdout } = await promisify(execFile)(process.execPath, [join(out, 'app.mjs')], { cwd: out });
  expect(stdout).toContain('cached 32 128');
});
