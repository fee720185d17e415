/**
 * The GPU driver and native calls are optional peers: no door loads them. A program that asks for a device without its driver is
 * told the command that installs it; without native calls all other tiers work, and say what they lack.
 */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { doors } from './doors.ts';

const root = join(import.meta.dirname, '..', '..');
const files = doors().map(({ file }) => `./${file}`);

/** Hooks of a process that has no such packages, or in which they do not load. */
const without = (fault: string): string => `
  import { registerHooks } from 'node:module';
  const asked = [];
  registerHooks({ resolve(specifier, context, next) {
    if (!/^(webgpu|@webgpu\\/types|koffi)$/.test(specifier)) return next(specifier, context);
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
  const load = files.map((door) => `await import('${door}');`).join('\n');
  const { stdout, stderr } = run(`${load}\nconsole.log(JSON.stringify(asked));`);
  expect(stderr).toBe('');
  expect(files.length).toBeGreaterThan(5);
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

it('memory and files keep blocks without native calls, and say what is missing and what installs it', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tierkv-no-koffi-'));
  const twice = `
    const { KVRuntime, kvLayout } = await import('./src/index.ts');
    const layout = kvLayout({ ${layout} });
    const open = (notice) => KVRuntime.open({ layout, model: 'test@1', secretKey: new Uint8Array(32).fill(7),
      ddrBytes: 20 * layout.blockBytes, nvme: { dir: ${JSON.stringify(folder)}, bytes: 40 * layout.blockBytes }, notice });
    const tokens = Array.from({ length: 65 }, (_, i) => i);
    const first = await open((line) => console.log(line));
    const sequence = await first.begin(tokens, { tenant: 'a' });
    for (const { index } of first.openBlocks(sequence)) first.write(sequence, index, (bytes) => bytes.fill(index + 1));
    await first.seal(sequence);
    first.release(sequence);
    const rival = await open(() => {}).catch((error) => error.code);
    await first.save();
    await first.close();
    const second = await open(() => {});
    const again = await second.begin(tokens, { tenant: 'a' });
    console.log(rival, again.cachedTokens, second.read(again, 2)[9], asked.includes('koffi'));
    second.release(again);
    await second.close();`;
  try {
    const { stdout, stderr } = run(twice);
    expect(stderr).toBe('');
    const missing = 'the package koffi is not installed; run: npm install koffi';
    expect(stdout.trimEnd().split('\n')).toEqual([
      `DDR: the memory is not locked and may be paged out (${missing})`,
      `NVMe: disk space is not set aside (${missing}): a full disk refuses writes later on`,
      'TKV_LOCKED 64 3 true',
    ]);
  } finally {
    rmSync(folder, { recursive: true });
  }
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
