/** The findings of the tidy scan on the project as it is. */

import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { rules } from './exceptions.ts';
import { type Finding, findPhrases, findUntidy } from './tidyScan.ts';

export const root: string = join(import.meta.dirname, '..', '..');

function read(patterns: readonly string[]): [path: string, text: string][] {
  return globSync([...patterns], { cwd: root })
    .map((path) => path.replaceAll('\\', '/'))
    .filter((path) => !path.startsWith('examples/policies/assembly/'))
    .sort()
    .map((path) => [path, readFileSync(join(root, path), 'utf8')]);
}

export interface ProjectFindings {
  readonly files: number;
  /** Findings of all rules but the one on phrases. */
  readonly places: readonly Finding[];
  /** Number of banned phrases by file. */
  readonly phrases: ReadonlyMap<string, number>;
}

export function tidyFindings(): ProjectFindings {
  const sources = read(['src/**/*.ts', 'test/**/*.ts', 'bench/**/*.ts', 'examples/**/*.ts', 'tools/*.ts']);
  const findings = findUntidy(root, Object.fromEntries(sources), rules);
  const pages = read(['*.md', 'docs/**/*.md']).flatMap(([path, text]) => findPhrases(path, text));
  const phrases = new Map<string, number>();
  for (const { rule, at } of [...findings, ...pages]) {
    const file = at.replace(/:\d+$/, '');
    if (rule === 'phrase') phrases.set(file, (phrases.get(file) ?? 0) + 1);
  }
  return { files: sources.length, places: findings.filter(({ rule }) => rule !== 'phrase'), phrases };
}
