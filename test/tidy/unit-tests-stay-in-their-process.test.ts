/** A unit test opens no device and starts no process or thread: nothing that it imports can. */

import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, matchesGlob, posix } from 'node:path';
import { expect, it } from 'vitest';
import { live, slices } from '../../vitest.config.ts';

const root = join(import.meta.dirname, '..', '..');
const outside = /^(webgpu|(node:)?(child_process|cluster|net|worker_threads))$/;

/** What a source imports when it runs, at once or later; types are left out. */
function importsOf(text: string): string[] {
  const found = text.matchAll(
    /^\s*(?:import|export)\b(?!\s+type\b)(?:[^;'"]*?\bfrom)?\s*'([^']+)'|\bimport\(\s*'([^']+)'\s*\)/gm,
  );
  return [...found].map(([, eager, lazy]) => eager ?? lazy);
}

const imports = new Map<string, readonly string[]>();

/** The shortest way of imports from `file` out of the process, by paths below the project. */
function wayOut(file: string, textOf: (file: string) => string, known = imports): string[] | undefined {
  const from = new Map<string, string | undefined>([[file, undefined]]);
  for (const at of from.keys()) {
    if (!/\.m?[jt]s$/.test(at)) continue;
    let names = known.get(at);
    if (names === undefined) known.set(at, (names = importsOf(textOf(at))));
    for (const name of names) {
      if (outside.test(name)) {
        const way = [name];
        for (let step: string | undefined = at; step !== undefined; step = from.get(step)) way.unshift(step);
        return way;
      }
      const next = posix.join(dirname(at), name);
      if (name.startsWith('.') && !from.has(next)) from.set(next, at);
    }
  }
  return undefined;
}

const mayLeave = (file: string): boolean => [...live, ...slices].some((glob) => matchesGlob(file, glob));

it('no import of a unit test leads to WebGPU, a process, a thread or a socket', () => {
  // an import that stands in a text of a test may lead to no file; real ones are held by tsc
  const textOf = (file: string): string =>
    existsSync(join(root, file)) ? readFileSync(join(root, file), 'utf8') : '';
  const files = globSync('test/**/*.test.ts', { cwd: root });
  const units = files.filter((file) => !mayLeave(file));
  expect(units.length).toBeGreaterThan(100);
  expect(files.length - units.length).toBeGreaterThan(100);
  const ways = units.flatMap((file) => wayOut(file, textOf)?.join(' > ') ?? []);
  expect(ways, 'take the import out, or add the test to `live` in vitest.config.ts').toEqual([]);
});

it('control: a way out is found through other files, and a type import does not count', () => {
  const texts: Record<string, string> = {
    'test/a.test.ts': "import { b } from '../src/b.ts';\n",
    'src/b.ts': "import type { Worker } from 'node:worker_threads';\nexport * from './c.ts';\n",
    'src/c.ts': `const open = async () => await ${'import'}('webgpu');\n`,
    'test/d.test.ts': "import type { Server } from 'node:net';\nimport fs from 'node:fs';\n",
    'test/e.test.ts': "import {\n  spawn,\n} from 'node:child_process';\n",
  };
  const way = (file: string) => wayOut(file, (name) => texts[name], new Map());
  expect(way('test/a.test.ts')).toEqual(['test/a.test.ts', 'src/b.ts', 'src/c.ts', 'webgpu']);
  expect(way('test/d.test.ts')).toBe(undefined);
  expect(way('test/e.test.ts')).toEqual(['test/e.test.ts', 'node:child_process']);
});
