import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'CONTRIBUTING.md'), 'utf8');
const errands = page.slice(page.indexOf('## Errands'), page.indexOf('## Rules'));
const words = [...errands.matchAll(/`([^`\n]+)`/g)].map(([, word]) => word);
const textOf = (folder: string): string =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(join(root, folder, name), 'utf8'))
    .join('\n');
const sources = textOf('src') + textOf('test') + textOf('examples');

/** Files that an errand names whole; NAME and ROOM stand for the contributor's own. */
const isFile = (word: string): boolean =>
  /^(src|test|docs|examples|shaders|tools)\//.test(word) && !/NAME|ROOM/.test(word);
const isIdentifier = (word: string): boolean => /^[a-z]+[A-Z]\w*$|^[A-Z][a-z]\w*$/.test(word);

it('the errands of CONTRIBUTING.md name files that are there', () => {
  const files = words.filter(isFile);
  expect(files.length).toBeGreaterThan(25);
  expect(files.filter((file) => !existsSync(join(root, file)))).toEqual([]);
});

it('there is one for each thing that is added often, with a file to begin in and the tests of it', () => {
  const parts = errands.split(/^\*\*/m).slice(1);
  const titles = parts.map((part) => part.slice(0, part.indexOf('.**')));
  expect(titles).toEqual([
    'An eviction policy',
    'A routing policy',
    'A tier',
    'An option of `simulate`',
    'A command',
    'A metric of a runtime',
    'A trace format',
    'A kernel',
    'A model family of the example server',
  ]);
  for (const [i, part] of parts.entries()) {
    expect(part, titles[i]).toMatch(/^1\. `(src|shaders|examples)\//m);
    expect(part, titles[i]).toMatch(/\bTests: /);
  }
});

it('and names that the sources have', () => {
  const names = words.filter(isIdentifier);
  expect(names.length).toBeGreaterThan(15);
  const missing = (all: readonly string[]): string[] =>
    all.filter((name) => !new RegExp(`\\b${name}\\b`).test(sources));
  expect(missing(names)).toEqual([]);
  expect(missing([['eviction', 'About'].join('')])).toHaveLength(1); // as the page once named
});
