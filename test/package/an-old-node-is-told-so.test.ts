/**
 * On a Node that is too old, library and command line say so in one line. Tried with an old Node where one is
 * on the PATH, or where TIERKV_OLD_NODE names one.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nodeIsTooOld } from '../../src/nodeVersion.ts';

const root = join(import.meta.dirname, '..', '..');

it('the oldest Node is the one that package.json asks for', () => {
  const { engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const oldest = /^>=(\d+)\.(\d+)$/.exec(engines.node);
  const [major, minor] = [Number(oldest?.[1]), Number(oldest?.[2])];
  expect(nodeIsTooOld(`${major}.${minor}.0`)).toBe(undefined);
  expect(nodeIsTooOld(`${major}.${minor - 1}.9`)).toBe(
    `tierkv needs Node.js ${major}.${minor} or later; this is ${major}.${minor - 1}.9.`,
  );
});

it.each(['18.20.4', '20.20.2', '21.7.3', '22.11.0'])('%s is too old', (version) => {
  expect(nodeIsTooOld(version)).toBe(`tierkv needs Node.js 22.12 or later; this is ${version}.`);
});

it.each(['22.12.0', '22.20.1', '23.0.0', '24.1.0', '100.0.0'])('%s will do', (version) => {
  expect(nodeIsTooOld(version)).toBe(undefined);
});

/** A Node from 18 on that is too old, and its version; undefined without one. */
function oldNode(): { readonly path: string; readonly version: string } | undefined {
  const named = process.env.TIERKV_OLD_NODE;
  const folders = (process.env.PATH ?? '').split(delimiter);
  for (const path of named === undefined ? folders.map((folder) => join(folder, 'node')) : [named]) {
    if (!existsSync(path)) continue;
    const { stdout } = spawnSync(path, ['--version'], { encoding: 'utf8' });
    const version = /^v((?:18|20|21|22)\..+)$/.exec(stdout?.trim() ?? '')?.[1];
    if (version !== undefined && nodeIsTooOld(version) !== undefined) return { path, version };
  }
  return undefined;
}

const old = oldNode();
if (old === undefined) console.warn('SKIPPED: no Node older than 22.12 is here to try (TIERKV_OLD_NODE)');

describe.skipIf(old === undefined)(`Node ${old?.version ?? '(none here)'}`, () => {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-old-node-'));
  const says = nodeIsTooOld(old?.version ?? '20.0.0') ?? '';
  const run = (args: string[]) => spawnSync(old?.path ?? '', args, { encoding: 'utf8', cwd: dir });

  beforeAll(() => {
    const build = [join(root, 'tools', 'build.ts'), '--no-declarations', '--out', join(dir, 'dist')];
    const built = spawnSync(process.execPath, build, { encoding: 'utf8' });
    expect([built.status, built.stderr]).toEqual([0, '']);
    symlinkSync(join(root, 'node_modules'), join(dir, 'node_modules'));
    symlinkSync(join(root, 'package.json'), join(dir, 'package.json'));
  });
  afterAll(() => rmSync(dir, { recursive: true }));

  it.each([['--help'], ['replay', 'trace.jsonl'], []])('the command line says so: %j', (...args) => {
    const { stderr, stdout, status } = run([join(dir, 'dist', 'cli', 'main.js'), ...args]);
    expect(stderr).toBe(`${says}\n`);
    expect(stdout).toBe('');
    expect(status).toBe(2);
  });

  it.each(['index.js', 'serve/index.js'])('an import says so: %s', (door) => {
    const url = pathToFileURL(join(dir, 'dist', door)).href;
    const load = `import('${url}').then(() => console.log('loaded'), (e) => console.log(e.code, e.message))`;
    const { stdout, stderr } = run(['--input-type=module', '-e', load]);
    expect(stderr).toBe('');
    expect(stdout).toBe(`TKV_STATE ${says}\n`);
  });
});
