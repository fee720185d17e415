/**
 * The browser door as bundlers make it part of a page: nothing of Node, of the simulator or of the command line in it, and
 * at most 166 kB compressed. The door is built as `npm run build` builds it; esbuild and rolldown then bundle a page over it.
 */

import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import esbuild from 'esbuild';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { NoteCipher } from '../../src/adapters/browser/noteCipher.ts';
import { sha256 } from '../../src/backends/file/sha256.ts';
import { buildForBrowsers } from '../../tools/browserBuild.ts';
import { buildPages, installedPrograms } from '../../tools/browserPages.ts';

const COMPRESSED_BYTES_MOST = 166_000;
const dir = mkdtempSync(join(tmpdir(), 'tierkv-browser-door-'));
afterAll(() => rmSync(dir, { recursive: true }));
const main = join(dir, 'main.mjs');
const modules: string[] = [];

beforeAll(async () => {
  const door = join(dir, 'node_modules', 'tierkv');
  const chunks = await buildForBrowsers({
    input: { index: 'src/adapters/browser/index.ts' },
    dir: door,
    minify: false,
  });
  modules.push(...chunks.flatMap(({ moduleIds }) => moduleIds));
  const manifest = { name: 'tierkv', type: 'module', exports: { './browser': './index.js' } };
  writeFileSync(join(door, 'package.json'), JSON.stringify(manifest));
  writeFileSync(main, "export { kvLayout, openInBrowser } from 'tierkv/browser';\n");
});

/** All code below a folder. */
function codeIn(folder: string): string {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.js'),
  );
  return names.map((name) => readFileSync(join(folder, name), 'utf8')).join('\n');
}

const bundlers: Readonly<Record<string, (out: string) => Promise<unknown>>> = {
  esbuild: (out) =>
    esbuild.build({
      entryPoints: [main],
      outdir: out,
      bundle: true,
      splitting: true,
      platform: 'browser',
      format: 'esm',
      minify: true,
      logLevel: 'silent',
    }),
  rolldown: async (out) => {
    const bundle = await rolldown({ input: main, platform: 'browser' });
    await bundle.write({ dir: out, format: 'esm', minify: true });
    await bundle.close();
  },
};

it.each(Object.keys(bundlers))('%s makes a page of it, small and without Node', async (name) => {
  const out = join(dir, name);
  mkdirSync(out);
  await bundlers[name](out);
  const code = codeIn(out);
  const ofNode = [...code.matchAll(/from\s*["']node:\w+|import\(["'`]node:\w+|\brequire\([^)]*/g)];
  expect(ofNode.map(([found]) => found)).toEqual([]);
  if (process.env.TIERKV_SIZES !== undefined)
    process.stderr.write(`${name}: ${gzipSync(code).length} bytes\n`);
  expect(gzipSync(code).length).toBeLessThan(COMPRESSED_BYTES_MOST);
});

it('has no code that only a page of transformers.js needs, which has its own door', async () => {
  const chunks = await buildForBrowsers({
    input: { transformers: 'src/adapters/browser/transformers.ts' },
    dir: join(dir, 'transformers'),
    minify: false,
    external: ['@huggingface/transformers'],
  });
  const ofEngine = (id: string): boolean => id.includes('/src/adapters/transformers/');
  expect(modules.filter(ofEngine)).toEqual([]);
  expect(chunks.flatMap(({ moduleIds }) => moduleIds).filter(ofEngine).length).toBeGreaterThan(3);
  expect(gzipSync(codeIn(join(dir, 'transformers'))).length).toBeLessThan(COMPRESSED_BYTES_MOST * 1.5);
});

it('has neither the simulator nor the command line in it', () => {
  const parts = modules.map((id) => /\/src\/(\w+)\//.exec(id)?.[1]).filter((part) => part !== undefined);
  expect(new Set(parts)).toEqual(new Set(['adapters', 'backends', 'embed', 'runtime']));
});

it('every example page builds, and takes the doors that pages have', async () => {
  const out = join(dir, 'pages');
  const names = installedPrograms();
  await buildPages(out, names);
  expect(readdirSync(out)).toEqual(expect.arrayContaining(names.map((name) => `${name}.js`)));
});

it('control: a module of Node is an error that names its importer', async () => {
  writeFileSync(join(dir, 'bad.ts'), "import 'node:fs';\n");
  const build = buildForBrowsers({ input: { bad: join(dir, 'bad.ts') }, dir: join(dir, 'bad') });
  await expect(build).rejects.toThrow(/bad\.ts imports node:fs/);
});

it('hashes as Node does, and seals notes that only their secret opens', async () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 7) & 255);
    const own = Array.from(sha256(bytes), (word) => word.toString(16).padStart(8, '0')).join('');
    const wanted = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    expect(own).toBe(Buffer.from(wanted).toString('hex'));
  }
  const secret = new Uint8Array(32).fill(3);
  const [nonce, key, plain] = [12, 16, 100].map((length) => crypto.getRandomValues(new Uint8Array(length)));
  const { sealed, tag } = new NoteCipher(secret).seal(nonce, key, plain);
  expect(sealed).not.toEqual(plain);
  expect(new NoteCipher(secret).open(nonce, tag, key, sealed)).toEqual(plain);
  const changed = (bytes: Uint8Array): Uint8Array => bytes.map((byte, i) => (i === 5 ? byte ^ 1 : byte));
  expect(new NoteCipher(secret).open(nonce, tag, key, changed(sealed))).toBeUndefined();
  expect(new NoteCipher(secret).open(nonce, changed(tag), key, sealed)).toBeUndefined();
  expect(new NoteCipher(secret).open(nonce, tag, changed(key), sealed)).toBeUndefined();
  expect(new NoteCipher(changed(secret)).open(nonce, tag, key, sealed)).toBeUndefined();
});
