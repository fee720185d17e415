#!/usr/bin/env node
/**
 * `npx tierkv` in a checkout: the command from its sources, on the Node that the repository brings. npx has
 * that one first on its PATH; whoever calls this file with an older Node is passed on to it.
 */

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const main = new URL('../../src/cli/main.ts', import.meta.url);
if (process.features.typescript) await import(main);
else {
  const own = fileURLToPath(new URL('../../node_modules/.bin/node', import.meta.url));
  const node = existsSync(own) ? own : process.execPath;
  const { status, signal } = spawnSync(node, [fileURLToPath(main), ...process.argv.slice(2)], {
    stdio: 'inherit',
  });
  process.exit(signal === null ? status : 1);
}
