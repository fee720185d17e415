/**
 * The public names of the package, by door: what `doors.txt` beside this file holds, so that a name that comes or goes is a line in
 * review. `node test/package/doors.ts` writes the file anew. It counts the names that stand on no page, which may only fall.
 */

import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const root = join(import.meta.dirname, '..', '..');
const text = (path: string): string => readFileSync(join(root, path), 'utf8');

/** Exported names of a module, by its text; `*` of another module are its names. */
function namesOf(file: string): string[] {
  const source = text(file).replaceAll(/\/\*.*?\*\/|\/\/.*$/gms, '');
  const names: string[] = [];
  for (const [, list] of source.matchAll(/^export (?:type )?\{([^}]*)\}/gm)) {
    for (const each of list.split(',')) {
      const name = /(\w+)$/.exec(each.trim())?.[1];
      if (name !== undefined) names.push(name);
    }
  }
  for (const [, as, from] of source.matchAll(/^export \* (?:as (\w+) )?from '([^']+)'/gm)) {
    names.push(...(as === undefined ? namesOf(join(dirname(file), from)) : [as]));
  }
  const declared =
    /^export (?:declare )?(?:abstract )?(?:async )?(?:function\*?|class|const|let|interface|type|enum) (\w+)/gm;
  for (const [, name] of source.matchAll(declared)) names.push(name);
  return names;
}

/** Names by door of package.json, in the order of the alphabet. */
export function publicNames(): ReadonlyMap<string, readonly string[]> {
  const { exports } = JSON.parse(text('package.json')) as {
    readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
  };
  const doors = Object.entries(exports).flatMap(([door, at]) =>
    typeof at === 'string'
      ? []
      : [[door, at.default.replace('./dist/', 'src/').replace(/js$/, 'ts')] as const],
  );
  return new Map(doors.map(([door, file]) => [door, [...new Set(namesOf(file))].sort()]));
}

/** Words of the pages that users read. */
function wordsOfPages(): ReadonlySet<string> {
  const pages = ['README.md', ...globSync('docs/{guide,reference}/**/*.md', { cwd: root })];
  return new Set(pages.flatMap((page) => text(page).match(/\w+/g) ?? []));
}

export interface DoorCounts {
  readonly doors: number;
  readonly names: number;
  readonly onNoPage: number;
}

/** `doors.txt` as it should be. */
export function snapshot(): { readonly text: string; readonly counts: DoorCounts } {
  const byDoor = publicNames();
  const all = new Set([...byDoor.values()].flat());
  const words = wordsOfPages();
  const onNoPage = [...all].filter((name) => !words.has(name)).length;
  const counts = { doors: byDoor.size, names: all.size, onNoPage };
  const lines = [`${counts.doors} doors, ${counts.names} names, ${counts.onNoPage} of them on no page`];
  for (const [door, names] of byDoor) {
    lines.push('', `${door}  ${names.length}`, ...names.map((name) => `  ${name}`));
  }
  return { text: `${lines.join('\n')}\n`, counts };
}

export const file: string = join(import.meta.dirname, 'doors.txt');

if (import.meta.main) {
  const { text: after, counts } = snapshot();
  const before = existsSync(file) ? readFileSync(file, 'utf8') : '';
  if (after !== before) writeFileSync(file, after);
  console.log(counts);
}
