import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const structure = readFileSync(join(root, 'ARCHITECTURE.md'), 'utf8');
const described = new Map(
  [...structure.matchAll(/^\| `([^`]+)` \| (.+) \|$/gm)].map(([, folder, sentence]) => [folder, sentence]),
);

it('every folder with sources has one sentence in ARCHITECTURE.md', () => {
  const folders = new Set(globSync('src/**/*.ts', { cwd: root }).map((path) => dirname(path)));
  folders.delete('src');
  expect(folders.size).toBeGreaterThan(10);
  expect([...folders].filter((folder) => !described.has(folder)).sort()).toEqual([]);
});

it('every sentence is about a folder that exists, and is one sentence', () => {
  for (const [folder, sentence] of described) {
    expect(existsSync(join(root, folder)), folder).toBe(true);
    expect(sentence.trim(), folder).toMatch(/^[^.]+(\.[^ .][^.]*)*\.$/);
  }
});
