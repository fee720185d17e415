/**
 * Takes the headers out of the Node that `npm ci` installs: a third of its size, which only compilers of native addons read.
 * No package of this repository is compiled when it is installed. Plain JavaScript, since the Node of the machine runs it.
 */

import { readdirSync, rmSync } from 'node:fs';

const modules = new URL('../../node_modules/', import.meta.url);
for (const name of readdirSync(modules)) {
  if (name.startsWith('node-linux-'))
    rmSync(new URL(`${name}/include`, modules), { recursive: true, force: true });
}
