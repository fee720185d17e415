/**
 * Builds the pages of `examples/browser` and serves them: `npm run browser`. They are static files: `--out FOLDER` only
 * writes them, for any server. Shared memory needs the two headers of isolation that this one sends.
 */

import { copyFileSync, globSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { makeDecoder } from '../examples/tinyDecoder/make.ts';
import { isInstalled } from '../test/extras.ts';
import { buildForBrowsers } from './browserBuild.ts';

const root = resolve(import.meta.dirname, '..');
const examples = join(root, 'examples', 'browser');

/** Programs of pages and of their workers, by the names that pages load them under. */
export const programs: readonly string[] = [
  'planner',
  'plannerWorker',
  'chat',
  'chatWorker',
  'transformersWorker',
];

/** Programs whose packages are installed: the one over transformers.js needs `npm run extras`. */
export const installedPrograms = (): readonly string[] =>
  isInstalled('@huggingface/transformers')
    ? programs
    : programs.filter((name) => name !== 'transformersWorker');

/** Writes pages, styles and programs into `dir`. @param names programs to build; default: all */
export async function buildPages(dir: string, names: readonly string[] = programs): Promise<void> {
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true });
  for (const file of globSync('*.{html,css}', { cwd: examples }))
    copyFileSync(join(examples, file), join(dir, file));
  const server = join(root, 'examples', 'server');
  copyServed(join(server, 'tinyModel', 'files'), join(dir, 'model'));
  copyServed(join(server, 'engine', 'shaders'), join(dir, 'shaders'));
  if (names.includes('transformersWorker')) {
    makeDecoder(join(dir, 'decoder'));
    copyOnnxRuntime(dir);
  }
  await buildForBrowsers({
    instead,
    input: Object.fromEntries(names.map((name) => [name, join(examples, `${name}.ts`)])),
    dir,
  });
}

/** What the example's engine imports of Node, and what stands in its place in a page. */
const instead = Object.fromEntries(
  ['node:fs', 'node:crypto', 'node:module', 'node:vm'].map((name) => [name, join(examples, 'pageFiles.ts')]),
);

/** What onnxruntime-web loads at run time, as `ort` beside a page: the build that transformers.js takes by itself. */
export function copyOnnxRuntime(dir: string): void {
  const transformers = createRequire(import.meta.url).resolve('@huggingface/transformers');
  const from = dirname(createRequire(transformers).resolve('onnxruntime-web/webgpu'));
  mkdirSync(join(dir, 'ort'), { recursive: true });
  for (const ending of ['mjs', 'wasm']) {
    const name = `ort-wasm-simd-threaded.asyncify.${ending}`;
    copyFileSync(join(from, name), join(dir, 'ort', name));
  }
}

/** Copies files of a folder of the example server to where pages fetch them. */
function copyServed(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const name of globSync('*', { cwd: from })) copyFileSync(join(from, name), join(to, name));
}

const types: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.mjs': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
  '.wgsl': 'text/plain; charset=utf-8',
  '.safetensors': 'application/octet-stream',
  '.onnx': 'application/octet-stream',
  '.onnx_data': 'application/octet-stream',
};

const isolation = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
};

/**
 * The files below `dir`, to this machine alone.
 * @param port 0: any that is free
 * @param isIsolated whether pages get the headers that shared memory needs
 */
export async function servePages(
  dir: string,
  port: number,
  isIsolated = true,
): Promise<{ readonly url: string; readonly server: Server }> {
  const names = new Set(globSync('**/*', { cwd: dir }));
  const server = createServer((request, response) => {
    const [path] = (request.url ?? '/').split('?');
    const name = path.slice(1) || 'index.html';
    const type = types[extname(name)];
    if (!names.has(name) || type === undefined) {
      response
        .writeHead(404, { 'content-type': 'text/plain' })
        .end(`${basename(name)} does not exist here.\n`);
      return;
    }
    response
      .writeHead(200, {
        'content-type': type,
        'cache-control': 'no-cache',
        ...(isIsolated ? isolation : {}),
      })
      .end(readFileSync(join(dir, name)));
  });
  await new Promise<void>((done, fail) => {
    server.once('error', fail);
    server.listen(port, '127.0.0.1', done);
  });
  return { url: `http://localhost:${(server.address() as AddressInfo).port}`, server };
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: { out: { type: 'string' }, port: { type: 'string', default: '8080' } },
  });
  const dir = resolve(values.out ?? join(root, '.built', 'browser'));
  const names = installedPrograms();
  if (names.length < programs.length)
    console.log('Without the page over transformers.js: npm run extras installs what it needs.');
  await buildPages(dir, names);
  if (values.out !== undefined) console.log(`${dir}: put these files on any server`);
  else {
    const { url } = await servePages(dir, Number(values.port));
    console.log(
      globSync('*.html', { cwd: dir })
        .sort()
        .map((page) => `${url}/${page}`)
        .join('\n'),
    );
  }
}
