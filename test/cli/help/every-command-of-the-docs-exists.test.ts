/**
 * Every command line of README, guides, reference and internals as the command reads it: the command, its options and what they
 * take must exist. Pages write `npx tierkv`, which is found in a checkout and beside an installed package.
 */

import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { expect, it } from 'vitest';
import { makeProgram } from '../../../src/cli/program.ts';

const root = resolve(import.meta.dirname, '../../..');
const pages = ['README.md', ...globSync('docs/{guide,reference,internals}/*.md', { cwd: root })].sort();

/** Lines of code blocks, with their continuations, and without comments. */
function codeLines(page: string): string[] {
  const lines: string[] = [];
  let isFenced = false;
  for (const line of readFileSync(join(root, page), 'utf8').split('\n')) {
    if (/^\s*```/.test(line)) isFenced = !isFenced;
    else if (isFenced || line.startsWith('    ')) lines.push(line.trim());
  }
  return lines.join('\n').replaceAll('\\\n', ' ').split('\n');
}

/** Words of a line up to a pipe, a redirection or a comment; quotes hold words together. */
function wordsOf(text: string): string[] {
  const words: string[] = [];
  for (const [, double, single, plain] of text.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)) {
    if (plain !== undefined && /^([|#&;]|[<>]|2>)/.test(plain)) break;
    words.push(double ?? single ?? plain);
  }
  return words;
}

const found = pages.flatMap((page) =>
  codeLines(page).flatMap((line) => {
    const at = /(?:^|[|&;(] *|\$ )npx tierkv (?=[a-z])(.*)$/.exec(line);
    return at === null ? [] : [[page, at[1]] as const];
  }),
);

const simulated = ['sweep', 'evaluate'];

async function refusalOf(words: readonly string[]): Promise<string | undefined> {
  const [name, ...rest] = words;
  let command: Command | undefined = (await makeProgram([name])).program.commands.find(
    (one) => one.name() === name,
  );
  if (command === undefined) return `the command ${name} does not exist`;
  const sub = command.commands.find((one) => one.name() === rest[0]);
  if (sub !== undefined) {
    command = sub;
    rest.shift();
  }
  const divider = simulated.includes(name) ? rest.indexOf('--') : -1;
  const own = divider < 0 ? rest : rest.slice(0, divider);
  command.exitOverride().configureOutput({ writeErr: () => {} });
  try {
    const { unknown } = command.parseOptions(own);
    if (unknown.length > 0) return `${command.name()} does not know ${unknown[0]}`;
  } catch (error) {
    return (error as Error).message;
  }
  return divider < 0 ? undefined : await refusalOf(['simulate', ...rest.slice(divider + 1)]);
}

it('there are many, on many pages', () => {
  expect(found.length).toBeGreaterThan(100);
  expect(new Set(found.map(([page]) => page)).size).toBeGreaterThan(15);
});

it.each(found)('%s: %s', async (_page, line) => {
  expect(await refusalOf(wordsOf(line))).toBeUndefined();
});

it.each([
  ['simulat --rate 1', 'the command simulat does not exist'],
  ['simulate --rat 1', 'simulate does not know --rat'],
  ['sweep --grid rate=1 -- --modell x', 'simulate does not know --modell'],
  ['bench links --quik', 'does not know --quik'],
])('control: %s is refused', async (line, why) => {
  expect(await refusalOf(wordsOf(line))).toContain(why);
});

it('no page writes the command alone, or installs what is not published', () => {
  const bare = pages.flatMap((page) =>
    codeLines(page)
      .filter((line) => /^(\$ )?tierkv [a-z]/.test(line) || /npm (i|install) tierkv\b/.test(line))
      .map((line) => `${page}: ${line}`),
  );
  expect(bare).toEqual([]);
});
