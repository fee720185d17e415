/**
 * The GPU driver is an optional peer: no door loads it, and a program that asks for a device without it is told the command that
 * installs it.
 */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
};
/** All doors but the one that is a suite of vitest, which loads in a test alone. */
const doors = Object.values(manifest.exports).flatMap((door) =>
  typeof door === 'string' || door.default.endsWith('/contract.js')
    ? []
    : [door.default.replace('./dist/', './src/').replace(/js$/, 'ts')],
);

/** Hooks of a process that has no such packages, or in which they do not load. */
const without = (fault: string): string => `
  import { registerHooks } from 'node:module';
  const asked = [];
  registerHooks({ resolve(specifier, context, next) {
    if (!/^(webgpu|@webgpu\\/types)$/.test(specifier)) return next(specifier, context);
    asked.push(specifier);
    throw ${fault};
  } });`;
const absent = "Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' })";

function run(program: string, fault = absent, more: readonly string[] = []) {
  const args = ['--input-type=module', '-e', `${without(fault)}\n${program}`, ...more];
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  return { stdout, stderr, status };
}

const layout = "layers: 1, kvHeads: 1, headDim: 64, dtype: 'f16', blockTokens: 16";
/** Opens a runtime with these tiers. Writes `code field message` of the error, or `open`. */
const opening = (tiers: string): string => `
  const { KVRuntime, kvLayout } = await import('./src/index.ts');
  const layout = kvLayout({ ${layout} });
  const config = { layout, model: 'test@1', secretKey: new Uint8Array(32).fill(7), ${tiers} };
  await KVRuntime.open(config).then(
    async (kv) => { console.log('open'); await kv.close(); },
    (error) => console.log(error.code, error.field, error.message),
  );`;

it('no door asks for it, nor for its types', () => {
  const load = doors.map((door) => `await import('${door}');`).join('\n');
  const { stdout, stderr } = run(`${load}\nconsole.log(JSON.stringify(asked));`);
  expect(stderr).toBe('');
  expect(doors.length).toBeGreaterThan(5);
  expect(JSON.parse(stdout)).toEqual([]);
});

it('a runtime in host memory opens without it, and one with a device says what to install', () => {
  expect(run(opening('ddrBytes: 20 * layout.blockBytes')).stdout).toBe('open\n');
  expect(run(opening('hbmBytes: 20 * layout.blockBytes')).stdout).toBe(
    'TKV_DEVICE webgpu A device needs the package webgpu, which is not installed. Run: npm install webgpu. ' +
      'On a machine without a GPU, also: npm install --save-dev @sparticuz/chromium\n',
  );
});

it('one that does not load on this platform is told apart', () => {
  const fault = "new Error('libstdc++.so.6: version GLIBCXX_3.4.32 not found\\nRequire stack:')";
  expect(run(opening('hbmBytes: 20 * layout.blockBytes'), fault).stdout).toMatch(
    /^TKV_DEVICE webgpu A device needs the package webgpu, which does not load here \(libstdc\+\+\.so\.6: version GLIBCXX_3\.4\.32 not found\)\. Run/,
  );
});

it('the command says so in one line, and simulates without it', () => {
  const command = (line: string) =>
    run(`process.argv.splice(1, 0, 'tierkv'); await import('./src/cli/main.ts');`, absent, line.split(' '));
  const replay = command('replay data/mooncake-conversation-excerpt.jsonl.gz --requests 3');
  expect(replay.stderr).toMatch(/^[^\n]*npm install webgpu\.[^\n]*\n$/);
  expect(replay.status).not.toBe(0);
  const simulate = command('simulate --model qwen/qwen3-14b --workload chatbot --rate 20 --num-requests 3');
  expect(simulate.stderr).not.toMatch(/webgpu/);
  expect(simulate.status).toBe(0);
});
