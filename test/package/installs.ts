/**
 * What a user of the package gets, tried: builds, packs, installs the tarball into an empty directory outside
 * this checkout and uses it there, with the types of both kinds of module resolution, on Node 24 and on the
 * oldest line that is supported; one that is too old says so. Needs the npm registry, so it is a command of
 * its own (`npm run check:package`) and no test.
 */

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { smallWorkload } from '../cli/evaluate/smallWorkload.ts';
import { embedOutput } from '../examples/embedOutput.ts';
import { doors } from './doors.ts';

const root = join(import.meta.dirname, '..', '..');
/** Compressed: what `npm install` loads, with the doors of pages and all commands. */
const TARBALL_BYTES_MOST = 3_600_000;
/** On disk, without the packages that a user adds: all that a user without a GPU needs. */
const INSTALLED_BYTES_MOST = 10_000_000;
const doorNames = doors().flatMap(({ name }) => (name === 'tierkv' ? [] : [name.slice('tierkv/'.length)]));
const scratch = fs.mkdtempSync(join(tmpdir(), 'tierkv-install-'));
const run = (command: string, args: string[], cwd: string): string =>
  execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

/** The newest Node of a line, out of the registry. @returns its binary */
function nodeOf(line: string): string {
  const name = `node-${process.platform}-${process.arch}`;
  const folder = join(scratch, `node${line}`);
  fs.mkdirSync(folder);
  fs.writeFileSync(join(folder, 'package.json'), '{ "private": true }\n');
  run('npm', ['install', '--silent', '--no-audit', '--no-fund', `${name}@${line}`], folder);
  return join(folder, 'node_modules', name, 'bin', 'node');
}

try {
  run('npm', ['run', 'build'], root);
  run('npx', ['publint', '--strict'], root);
  run('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', scratch], root);
  const tarball = fs.readdirSync(scratch).find((name) => name.endsWith('.tgz'))!;
  const { size } = fs.statSync(join(scratch, tarball));
  assert.ok(size < TARBALL_BYTES_MOST, `the package has ${size} bytes`);
  console.log(`package: ${(size / 1e6).toFixed(2)} MB compressed`);
  const user = join(scratch, 'user');
  fs.mkdirSync(user);
  fs.writeFileSync(join(user, 'package.json'), '{ "name": "user", "private": true, "type": "module" }\n');
  run('npm', ['install', '--omit=dev', '--no-audit', '--no-fund', join('..', tarball)], user);

  const installed = fs.globSync(['*', '@*/*'], { cwd: join(user, 'node_modules') });
  const heavy = installed.filter((name) =>
    /^webgpu$|koffi|chromium|tfjs|tensorflow|huggingface|onnxruntime|vitest|vega|typescript|biome|node-linux/.test(
      name,
    ),
  );
  assert.deepEqual(heavy, [], 'packages that users must not get');
  const bytes = fs
    .globSync('node_modules/**', { cwd: user, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, { parentPath, name }) => sum + fs.statSync(join(parentPath, name)).size, 0);
  console.log(`installed: ${(bytes / 1e6).toFixed(1)} MB`);
  assert.ok(bytes < INSTALLED_BYTES_MOST, `what npm installs has ${bytes} bytes`);

  for (const door of doorNames) {
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
  // a peer that is not there is named when it is needed
  const absent =
    "const inputMetadata = ['key', 'value'].map((part) => ({ name: 'past_key_values.0.' + part, " +
    "type: 'float32', shape: ['b', 1, 'past', 16] })); " +
    "const { withPrefixCache } = await import('tierkv/transformers'); " +
    "await withPrefixCache({ config: {}, sessions: { model: { inputMetadata } }, generate() {} }, { weights: '.' })" +
    '.catch((error) => console.log(error.field, error.message))';
  assert.match(
    run(process.execPath, ['--input-type=module', '-e', absent], user),
    /^transformers .* npm install @huggingface\/transformers/,
  );
  fs.writeFileSync(
    join(user, 'doors.ts'),
    doorNames.map((door) => `export * as ${door.replaceAll('-', '_')} from 'tierkv/${door}';\n`).join(''),
  );
  const example = fs.readFileSync(join(root, 'examples', 'embed.ts'), 'utf8');
  fs.writeFileSync(join(user, 'embed.ts'), example.replace('../src/index.ts', 'tierkv'));
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const asUsersDo = ['--strict', '--target', 'es2022', '--lib', 'esnext', '--skipLibCheck'];
  const typeRoots = `${join(root, 'node_modules', '@types')},node_modules`;
  const nodeTypes = ['--typeRoots', typeRoots, '--types', 'node,@webgpu/types'];
  for (const resolution of [
    ['--module', 'nodenext'],
    ['--module', 'esnext', '--moduleResolution', 'bundler'],
  ]) {
    const check = [tsc, ...asUsersDo, ...resolution, '--noEmit'];
    run(process.execPath, [...check, '--types', '@webgpu/types', 'doors.ts'], user);
    run(process.execPath, [...check, ...nodeTypes, 'embed.ts'], user);
    console.log(`types: ${resolution.join(' ')}`);
  }
  const emit = ['--module', 'nodenext', '--outDir', 'out', ...nodeTypes];
  run(process.execPath, [tsc, ...asUsersDo, ...emit, 'embed.ts'], user);
  const bin = join(user, 'node_modules', '.bin', 'tierkv');
  const excerpt = join(root, 'data', 'mooncake-conversation-excerpt.jsonl.gz');

  // a plot without its packages is refused before the work, and a search goes on without
  const traffic = [
    '--model',
    'qwen/qwen3-14b',
    '--workload',
    'chatbot',
    '--rate',
    '20',
    '--num-requests',
    '20',
  ];
  const plotted = spawnSync(process.execPath, [bin, 'simulate', ...traffic, '--plot', 'run.svg'], {
    cwd: user,
    encoding: 'utf8',
  });
  assert.equal(plotted.status, 2);
  assert.equal(plotted.stdout, '');
  assert.match(
    plotted.stderr,
    /a plot needs the optional package vega-lite.* Run: npm install vega vega-lite/,
  );
  const suite = (seed: number): object => ({ seeds: [seed], perturbation: 0.1 });
  const suites = { train: suite(1), validation: suite(2), hidden: suite(3) };
  fs.writeFileSync(join(user, 'small.yaml'), smallWorkload);
  const plan = { workloads: ['small.yaml'], latencyModels: ['roofline'], suites };
  fs.writeFileSync(join(user, 'plan.json'), JSON.stringify(plan));
  const searching = [
    'evolve',
    '--plan',
    'plan.json',
    '--generations',
    '1',
    '--population',
    '4',
    '--out',
    'found',
  ];
  const searched = spawnSync(process.execPath, [bin, ...searching], {
    cwd: user,
    encoding: 'utf8',
  });
  assert.equal(searched.status, 0, searched.stderr);
  assert.match(searched.stderr, /draws no plots: a plot needs the optional package vega-lite/);
  assert.ok(fs.existsSync(join(user, 'found', 'best.json')));
  console.log('plots: refused at once without their packages, and left out of a search');

  // the GPU driver and the software device, which a user installs apart
  const { stderr: withoutDriver } = spawnSync(process.execPath, [bin, 'replay', excerpt, '--requests', '3'], {
    cwd: user,
    encoding: 'utf8',
  });
  assert.match(withoutDriver, /needs the package webgpu, which is not installed\. Run: npm install webgpu\./);
  fs.symlinkSync(join(root, 'node_modules', 'webgpu'), join(user, 'node_modules', 'webgpu'));
  fs.mkdirSync(join(user, 'node_modules', '@sparticuz'), { recursive: true });
  const software = join('@sparticuz', 'chromium');
  fs.symlinkSync(join(root, 'node_modules', software), join(user, 'node_modules', software));
  for (const line of ['24', '22']) {
    const node = nodeOf(line);
    assert.match(run(node, [bin, '--help'], user), /^Usage: tierkv/);
    const env = { ...process.env, TIERKV_ADAPTER: 'software' };
    const output = execFileSync(node, [join('out', 'embed.js')], { cwd: user, encoding: 'utf8', env });
    assert.deepEqual(output.trimEnd().split('\n'), embedOutput);
    console.log(`Node ${run(node, ['--version'], user).trim()}: tierkv --help, open, reload, close`);
  }
  const old = nodeOf('20');
  const version = run(old, ['--version'], user).trim().slice(1);
  const says = `tierkv needs Node.js 22.12 or later; this is ${version}.`;
  const told = spawnSync(old, [bin, '--help'], { encoding: 'utf8', cwd: user });
  assert.deepEqual([told.status, told.stdout, told.stderr], [2, '', `${says}\n`]);
  const load = "await import('tierkv').catch((error) => console.log(error.message))";
  assert.equal(run(old, ['--input-type=module', '-e', load], user).trim(), says);
  console.log(`Node ${version}: ${says}`);
  console.log(`installed packages: ${installed.filter((name) => !/^[.@][^/]*$/.test(name)).join(' ')}`);
  console.log(run('du', ['-sh', 'node_modules'], user).trim());
} finally {
  fs.rmSync(scratch, { recursive: true });
}
