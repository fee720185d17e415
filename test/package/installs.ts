/**
 * What a user of the package gets, tried: builds, packs, installs the tarball into an empty directory outside
 * this checkout and uses it there. Needs the npm registry, so it is a command of its own (`npm run
 * check:package`) and no test.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..', '..');
const scratch = fs.mkdtempSync(join(tmpdir(), 'tierkv-install-'));
const run = (command: string, args: string[], cwd: string): string =>
  execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

try {
  run('npm', ['run', 'build'], root);
  run('npx', ['publint', '--strict'], root);
  run('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', scratch], root);
  const tarball = fs.readdirSync(scratch).find((name) => name.endsWith('.tgz'))!;
  const user = join(scratch, 'user');
  fs.mkdirSync(user);
  fs.writeFileSync(join(user, 'package.json'), '{ "name": "user", "private": true, "type": "module" }\n');
  run('npm', ['install', '--omit=dev', '--no-audit', '--no-fund', join('..', tarball)], user);

  const installed = fs.globSync(['*', '@*/*'], { cwd: join(user, 'node_modules') });
  const heavy = installed.filter((name) =>
    /chromium|tfjs|tensorflow|vitest|vega|typescript|biome|node-linux/.test(name),
  );
  assert.deepEqual(heavy, [], 'packages that users must not get');

  for (const door of ['runtime', 'backends', 'sim']) {
    const names = run(
      process.execPath,
      ['--input-type=module', '-e', `console.log(Object.keys(await import('tierkv/${door}')).length)`],
      user,
    );
    assert.ok(Number(names) > 0, `tierkv/${door} exports nothing`);
    console.log(`tierkv/${door}: ${names.trim()} exports`);
  }
  const main =
    "const { KVRuntime, kvLayout } = await import('tierkv'); console.log(typeof KVRuntime.open, typeof kvLayout)";
  assert.match(run(process.execPath, ['--input-type=module', '-e', main], user), /^function function/);
  fs.writeFileSync(
    join(user, 'embed.ts'),
    ['runtime', 'backends', 'sim'].map((door) => `export * as ${door} from 'tierkv/${door}';\n`).join(''),
  );
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const asUsersDo = ['--strict', '--module', 'nodenext', '--lib', 'esnext', '--skipLibCheck', '--noEmit'];
  run(process.execPath, [tsc, ...asUsersDo, '--types', '@webgpu/types', 'embed.ts'], user);
  const bin = join(user, 'node_modules', '.bin', 'tierkv');
  assert.match(run(process.execPath, [bin, '--help'], user), /^Usage: tierkv/);
  console.log(`installed packages: ${installed.filter((name) => !/^[.@][^/]*$/.test(name)).join(' ')}`);
  console.log(run('du', ['-sh', 'node_modules'], user).trim());
} finally {
  fs.rmSync(scratch, { recursive: true });
}
