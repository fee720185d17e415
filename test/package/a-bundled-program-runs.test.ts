/**
 * A program that a bundler made one file of, tierkv's sources and shaders in it and native packages beside it,
 * opens a runtime, computes with its kernels and finds its blocks again.
 */

import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
// Far from the sources, so that no path up from the bundle leads to the package.
const dir = realpathSync(mkdtempSync(join(tmpdir(), 'tierkv-bundled-')));
afterAll(() => rmSync(dir, { recursive: true }));

const program = `
import { BufferUsage, KVRuntime, kvLayout } from ${JSON.stringify(join(root, 'src/index.ts'))};
import { BlockCopies } from ${JSON.stringify(join(root, 'src/compute/index.ts'))};

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

interface Bundler {
  readonly rolldown: (options: object) => Promise<{
    write(options: object): Promise<unknown>;
    close(): Promise<void>;
  }>;
}

it('built by the bundler of vite', async () => {
  const vitest = createRequire(createRequire(import.meta.url).resolve('vitest/package.json'));
  const vite = createRequire(vitest.resolve('vite/package.json'));
  const { rolldown } = (await import(pathToFileURL(vite.resolve('rolldown')).href)) as Bundler;
  writeFileSync(join(dir, 'main.ts'), program);
  const bundle = await rolldown({
    input: join(dir, 'main.ts'),
    platform: 'node',
    external: ['webgpu', 'koffi', 'quickjs-emscripten', '@valkey/valkey-glide', 'commander'],
  });
  await bundle.write({ file: join(dir, 'app', 'main.mjs'), format: 'esm', codeSplitting: false });
  await bundle.close();
  expect(readdirSync(join(dir, 'app'))).toEqual(['main.mjs']);
  symlinkSync(join(root, 'node_modules'), join(dir, 'app', 'node_modules'));
  const { stdout } = await promisify(execFile)(process.execPath, [join(dir, 'app', 'main.mjs')], {
    cwd: dir,
  });
  expect(stdout).toContain('cached 32 128');
}, 120_000);
