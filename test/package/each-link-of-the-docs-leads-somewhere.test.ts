import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const pages = new Map(
  globSync(['*.md', '{docs,data,bench,test}/**/*.md', '{examples,python}/**/*.md', '.github/**/*.md'], {
    cwd: root,
    exclude: (path) => path === 'node_modules',
  }).map((path) => [path, readFileSync(join(root, path), 'utf8')]),
);

const withoutSamples = (text: string): string => text.replaceAll(/^```[\s\S]*?^```/gm, '');

/** The anchor that GitHub gives a heading. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\- _]/gu, '')
    .replaceAll(' ', '-');

/** Links that lead nowhere, each as the page and the target. */
function brokenLinks(path: string, text: string): string[] {
  const broken: string[] = [];
  for (const [, target] of withoutSamples(text).matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^\w+:/.test(target)) continue;
    const [file, anchor] = target.split('#');
    const to = file === '' ? path : normalize(join(dirname(path), file));
    if (!existsSync(join(root, to))) broken.push(`${path}: ${target}`);
    if (anchor === undefined || !to.endsWith('.md')) continue;
    const page = to === path ? text : (pages.get(to) ?? '');
    const anchors = [...withoutSamples(page).matchAll(/^#+ (.+)$/gm)].map(([, heading]) => anchorOf(heading));
    if (!anchors.includes(anchor)) broken.push(`${path}: ${target}`);
  }
  return broken;
}

/**
 * Files and folders of the repository that a page names between backticks, or runs, and that do not exist. NAME and ROOM stand for
 * any.
 */
function missingPlaces(path: string, text: string): string[] {
  const folders = '(?:src|test|bench|examples|data|docs|python|shaders|tools)';
  const named = [
    ...text.matchAll(new RegExp(`\`(${folders}/[\\w./-]*)\``, 'g')),
    ...text.matchAll(new RegExp(`\\bnode (${folders}/[\\w./-]+)`, 'g')),
  ];
  return named
    .map(([, place]) => place)
    .filter((place) => !/NAME|ROOM/.test(place) && !existsSync(join(root, place)))
    .map((place) => `${path}: ${place}`);
}

it('every relative link and anchor of a page exists', () => {
  expect(pages.size).toBeGreaterThan(30);
  expect([...pages].flatMap(([path, text]) => brokenLinks(path, text))).toEqual([]);
});

it('every source, test and program that a page names exists', () => {
  expect([...pages].flatMap(([path, text]) => missingPlaces(path, text))).toEqual([]);
});

it('a link, an anchor and a name that lead nowhere are found', () => {
  const text = '# A page\n[a](missing.md) [b](#a-page) [c](#no-such) [d](https://x.example/y) `src/none.ts`';
  expect(brokenLinks('README.md', text)).toEqual(['README.md: missing.md', 'README.md: #no-such']);
  expect(missingPlaces('README.md', text)).toEqual(['README.md: src/none.ts']);
});
