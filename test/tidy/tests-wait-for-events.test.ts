/**
 * No test depends on what a busy machine does with a second: each rule stands for failures that came once in many runs, and
 * says what to write instead.
 */

import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');

interface WaitRule {
  readonly name: string;
  readonly breaks: RegExp;
  readonly remedy: string;
  /** A line that breaks it, and one that does not. */
  readonly bad: string;
  readonly good: string;
}

const rules: readonly WaitRule[] = [
  {
    name: 'random',
    breaks: /\bMath\.random\(/,
    remedy: 'draw from SeededRandom, with the seed of testSeed, which a failure prints',
    bad: 'const n = Math.random();',
    good: 'const n = random.below(3);',
  },
  {
    name: 'seed of the day',
    breaks: /\bseed\w*\b[^;=\n]*=[^;=\n]*\b(Date\.now|performance\.now|process\.(pid|hrtime))/i,
    remedy: 'take the seed of testSeed: the same draws in every run',
    bad: 'const seed = Number(given ?? Date.now() % 1e6);',
    good: 'const seed = testSeed(3);',
  },
  {
    name: 'a second to succeed',
    breaks: /\bvi\.wait(?:For|Until)\((?:(?!timeout)[^;])*;/,
    remedy: 'give it a timeout of 120_000 and more: the default is a second',
    bad: 'await vi.waitFor(() => expect(ended).toBe(true));',
    good: 'await vi.waitUntil(() => ended, { timeout: 120_000 });',
  },
  {
    name: 'a short poll',
    breaks: /\bexpect\.poll\([^;]*timeout: (?:\d{1,2}_?)?\d{1,3}\b(?!_)/,
    remedy: 'leave the timeout out: vitest.config.ts has one for all polls',
    bad: 'await expect.poll(() => size, { timeout: 500 }).toBe(0);',
    good: 'await expect.poll(() => size).toBe(0);',
  },
  {
    name: 'less time than others have',
    breaks: /^ *(?:\}, [12]?\d{1,2}_000\);|[12]?\d{1,2}_000,\n *\);)/m,
    remedy: 'leave it out: vitest.config.ts gives each test 300 seconds and more',
    bad: '}, 120_000);',
    good: '}, 1_200_000);',
  },
  {
    name: 'an exit with lines on the way',
    breaks: /\bonce\((?:[\w.#]+, )?'exit'(?:\)|, resolve\))/,
    remedy: "wait for 'close': at 'exit' what the program said may still be on its way",
    bad: "await once(child, 'exit');",
    good: "await once(child, 'close');",
  },
];

/** Places of `text` that break a rule, by line. */
function found(text: string): string[] {
  return rules.flatMap(({ name, breaks, remedy }) =>
    [...text.matchAll(new RegExp(breaks, `g${breaks.flags}`))].map(
      ({ index }) => `${text.slice(0, index).split('\n').length}: ${name}: ${remedy}`,
    ),
  );
}

/** These hold texts that break rules, to show that they are found or refused. */
const texts = /^test\/(tidy|runtime\/wall|sim\/(no-other-source|sandbox))/;

it('the tests keep the rules', () => {
  const files = globSync('test/**/*.ts', { cwd: root }).filter((file) => !texts.test(file));
  expect(files.length).toBeGreaterThan(500);
  const places = files.flatMap((file) =>
    found(readFileSync(join(root, file), 'utf8')).map((place) => `${file}:${place}`),
  );
  expect(places).toEqual([]);
});

it.each(rules)('control: $name is found, and what stands in its place is not', ({ name, bad, good }) => {
  expect(found(bad)).toEqual([expect.stringContaining(`1: ${name}: `)]);
  expect(found(good)).toEqual([]);
});
