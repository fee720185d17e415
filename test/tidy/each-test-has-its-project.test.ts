/** Each test file runs in one project of vitest.config.ts, the lists there name what is there, and each slice names its campaign. */

import { globSync, readFileSync } from 'node:fs';
import { join, matchesGlob } from 'node:path';
import { expect, it } from 'vitest';
import { live, long, slices } from '../../vitest.config.ts';

const root = join(import.meta.dirname, '..', '..');
/** Names in `campaigns` of `test/campaign.ts`, which starts processes and is not loaded here. */
const campaigns = [...readFileSync(join(root, 'test/campaign.ts'), 'utf8').matchAll(/^ {2}(\w+): \[/gm)].map(
  ([, name]) => name,
);
const files = globSync('test/**/*.test.ts', { cwd: root });
const isOf = (globs: readonly string[]) => (file: string) => globs.some((glob) => matchesGlob(file, glob));

/** Globs that match no file. */
const vain = (globs: readonly string[]): string[] =>
  globs.filter((glob) => !files.some((file) => matchesGlob(file, glob)));

/** What a slice says of its campaign that is wrong, or nothing. */
function problemOf(text: string): string | undefined {
  const [comment] = /^\/\*\*.*?\*\//s.exec(text) ?? [];
  const name = /`npm run campaign -- (\w+)/.exec(comment ?? '')?.[1];
  if (name === undefined) return 'must open with a comment that has `npm run campaign -- NAME`';
  return campaigns.includes(name) ? undefined : `names the campaign ${name}, which is not there`;
}

it('each slice opens with the campaign that runs it at full size', () => {
  const all = files.filter(isOf(slices));
  expect(all.length).toBeGreaterThan(15);
  const wrong = all.flatMap((file) => problemOf(readFileSync(join(root, file), 'utf8')) ?? []);
  expect(wrong).toEqual([]);
});

it('control: a slice without a campaign, or with one that is not there, is found', () => {
  expect(problemOf("import { it } from 'vitest';\n")).toMatch(/must open/);
  expect(problemOf('/** `npm run campaign -- nothing` */\n')).toMatch(/names the campaign nothing/);
  expect(problemOf('/** All: `npm run campaign -- faults`. */\n')).toBe(undefined);
});

it('the lists of long, live and sliced tests name files that are there, and no file twice', () => {
  expect(vain([...live, ...long, ...slices])).toEqual([]);
  expect(vain(['test/tidy/gone.test.ts'])).toHaveLength(1);
  expect(files.filter((file) => isOf(long)(file) && isOf([...live, ...slices])(file))).toEqual([]);
  const quick = files.filter((file) => !isOf([...live, ...long, ...slices])(file));
  expect(quick.length).toBeGreaterThan(100);
});
