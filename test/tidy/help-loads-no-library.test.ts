/** What a command imports before it runs: its options and their help, and no library behind them. */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const program = join(root, 'src/cli/program.ts');

/** Modules of the project and packages that are loaded with `file`: static imports that are not of types alone. */
function loadedWith(file: string, seen: Set<string> = new Set()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  const text = readFileSync(file, 'utf8');
  for (const [, from] of text.matchAll(/^(?:import|export) (?!type )[^;]*?'([^']+)';$/gms)) {
    if (from.startsWith('.')) loadedWith(join(dirname(file), from), seen);
    else seen.add(from);
  }
  return seen;
}

const commands = [
  ...readFileSync(program, 'utf8').matchAll(/await import\('(\.\/[^']+)'\)\)\.\w+Command/g),
].map(([, path]) => join(dirname(program), path));

it('every command is looked at', () => {
  expect(commands.length).toBeGreaterThan(15);
  expect(commands.filter((file) => !existsSync(file))).toEqual([]);
});

// 70 are the most today; a simulator has 170, and its readers bring 70 modules of `yaml`
it.each(commands)('%s', (file) => {
  const loaded = [...loadedWith(file)];
  expect(loaded).not.toContain('yaml');
  expect(
    loaded.filter((name) => name.startsWith(root)).map((name) => relative(root, name)).length,
  ).toBeLessThan(75);
});

it('a command that loads what it runs would be found', () => {
  const loaded = loadedWith(join(root, 'src/cli/parity/run.ts'));
  expect(loaded.size).toBeGreaterThan(150);
  expect(loaded).toContain('yaml');
});
