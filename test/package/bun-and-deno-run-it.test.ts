/** The front door under Bun and Deno, where they are installed: the software device, files, and reloading. */

import { execFile, spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { softwareArchive, unpackSoftwareDriver } from '../../src/backends/webgpu/softwareAdapter.ts';
import { embedOutput } from '../examples/embedOutput.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const example = join(root, 'examples', 'embed.ts');
const engines: Readonly<Record<string, readonly string[]>> = { bun: ['run'], deno: ['run', '-A'] };

function isHere(name: string): boolean {
  const here = spawnSync(name, ['--version']).status === 0;
  if (!here)
    console.warn(`SKIPPED: ${name} is not here; the front door was not run in it (npm install -g ${name})`);
  return here;
}

test.each(Object.entries(engines))('%s', async (name, args) => {
  const archive = softwareArchive();
  if (!isHere(name) || archive === undefined) return;
  const driver = unpackSoftwareDriver(archive);
  // a program's own changes of its environment do not reach C there
  const env = {
    ...process.env,
    VK_ICD_FILENAMES: driver.icdPath,
    LD_LIBRARY_PATH: dirname(driver.loaderPath),
  };
  const { stdout } = await promisify(execFile)(name, [...args, example], { cwd: root, env });
  expect(stdout.trimEnd().split('\n')).toEqual(embedOutput);
});
