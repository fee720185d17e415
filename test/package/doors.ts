/**
 * The public names of the package, by door, and the page that has them: `docs/reference/api.md`, a sentence a name, taken from
 * the docstring of its declaration. So a name that comes or goes is a line in review, and no name is without a page.
 * `node test/package/doors.ts` writes the page anew.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const root = join(import.meta.dirname, '..', '..');
const text = (path: string): string => readFileSync(join(root, path), 'utf8');

interface Target {
  readonly types: string;
  readonly default: string;
}
export interface Door {
  /** `tierkv/sim`. */
  readonly name: string;
  /** Below the root, as it is in `src`. */
  readonly file: string;
  /** What pages get in its place, where that is another file. */
  readonly page: string | undefined;
}

/** Doors of package.json, in its order. */
export function doors(): readonly Door[] {
  const { exports } = JSON.parse(text('package.json')) as {
    readonly exports: Readonly<Record<string, string | (Target & { readonly browser?: Target })>>;
  };
  const source = (target: Target): string => target.default.replace('./dist/', 'src/').replace(/js$/, 'ts');
  return Object.entries(exports).flatMap(([door, target]) =>
    typeof target === 'string'
      ? []
      : [
          {
            name: `tierkv${door.slice(1)}`,
            file: source(target),
            page: target.browser === undefined ? undefined : source(target.browser),
          },
        ],
  );
}

export interface PublicName {
  readonly name: string;
  readonly kind: 'class' | 'function' | 'value' | 'type';
  /** Empty where the declaration has no docstring that begins with a sentence. */
  readonly sentence: string;
}

const kinds = { class: 'class', function: 'function', interface: 'type', type: 'type' } as const;

/** What a module gives under the name, by its text. @throws Error for a name that it does not have */
export function nameIn(file: string, name: string, read: (path: string) => string = text): PublicName {
  const source = read(file);
  const declared = new RegExp(
    `^export (?:declare )?(?:abstract )?(?:async )?(function|class|const|let|interface|type|enum)\\*? ${name}\\b`,
    'gm',
  );
  const found = [...source.matchAll(declared)].map((each) => ({
    name,
    kind: kinds[each[1] as keyof typeof kinds] ?? ('value' as const),
    sentence: sentenceBefore(source.slice(0, each.index)),
  }));
  // a value and a type may have one name
  if (found.length > 0) return found.find(({ kind }) => kind !== 'type') ?? found[0];
  for (const [, ofTypes, list, from] of source.matchAll(/^export (type )?\{([^}]*)\} from '([^']+)'/gm)) {
    const entry = list.split(',').find((each) => each.trim().replace(/^type /, '') === name);
    if (entry === undefined) continue;
    const declared = nameIn(join(dirname(file), from), name, read);
    const isType = ofTypes !== undefined || entry.trim().startsWith('type ');
    return isType ? { ...declared, kind: 'type' } : declared;
  }
  for (const [, from] of source.matchAll(/^export \* from '([^']+)'/gm)) {
    const inner = join(dirname(file), from);
    if (namesOf(inner).includes(name)) return nameIn(inner, name, read);
  }
  throw new Error(`${file} has no ${name}`);
}

/** The first sentence of the docstring that ends `before`. */
function sentenceBefore(before: string): string {
  if (!/\*\/\n$/.test(before)) return '';
  const comment = before.slice(before.lastIndexOf('/**') + 3, before.lastIndexOf('*/'));
  const said = comment
    .split('\n')
    .map((line) => line.replace(/^\s*\* ?/, ''))
    .join('\n')
    .trim()
    .split(/(?:^|\s)@\w+|\n\n|\n {4}/)[0];
  const words = said.replaceAll(/\s+/g, ' ').trim();
  return /^.*?[^.]\.(?= [A-Z`]|$)/.exec(words)?.[0] ?? words;
}

/** Exported names of a module, by its text; `*` of another module are its names. */
function namesOf(file: string): string[] {
  const source = text(file).replaceAll(/\/\*.*?\*\/|\/\/[^\n]*/gs, '');
  const names: string[] = [];
  for (const [, list] of source.matchAll(/^export (?:type )?\{([^}]*)\}/gm)) {
    for (const each of list.split(',')) {
      const name = /(\w+)$/.exec(each.trim())?.[1];
      if (name !== undefined) names.push(name);
    }
  }
  for (const [, from] of source.matchAll(/^export \* from '([^']+)'/gm)) {
    names.push(...namesOf(join(dirname(file), from)));
  }
  const declared =
    /^export (?:declare )?(?:abstract )?(?:async )?(?:function\*?|class|const|let|interface|type|enum) (\w+)/gm;
  for (const [, name] of source.matchAll(declared)) names.push(name);
  return names;
}

/** What a door gives, in the order of the alphabet. */
export function publicNames({ file }: Pick<Door, 'file'>): readonly PublicName[] {
  return [...new Set(namesOf(file))].sort().map((name) => nameIn(file, name));
}

/** `docs/reference/api.md` as it should be. */
export function apiPage(): string {
  const lines = [
    '# Public names',
    '',
    'This page is for a person who looks for a name of the package: what it is, and the door that it is imported from. The guides say how to use them. A name',
    'that does not stand here is internal and may change in any release. The page is made of the docstrings of the sources; `npm run reference` in the',
    'repository makes the whole reference of them, with parameters and fields.',
  ];
  for (const door of doors()) {
    const about = /^\/\*\*\s*(.*?)(?:\n \*\n|\*\/)/s.exec(text(door.file))?.[1] ?? '';
    const said = about.replaceAll(/(?:^|\s*\n )\* ?/g, ' ').trim();
    lines.push('', `## ${door.name}`, '', said, '', '| name | | |', '|---|---|---|');
    for (const { name, kind, sentence } of publicNames(door)) {
      lines.push(`| \`${name}\` | ${kind} | ${sentence.replaceAll('|', '\\|')} |`);
    }
  }
  return `${lines.join('\n')}\n`;
}

/** Most doors, and most names behind them. */
export const limits = { doors: 10, names: 350 } as const;

/** How much there is, and what lacks its sentence. */
export function counts(over: readonly Pick<Door, 'file'>[] = doors()): {
  readonly doors: number;
  readonly names: number;
  readonly silent: readonly string[];
} {
  const all = new Map(over.flatMap((door) => publicNames(door).map((each) => [each.name, each])));
  const silent = [...all.values()].filter(({ sentence }) => !/^[A-Z`].{15,}\.$/.test(sentence));
  return { doors: over.length, names: all.size, silent: silent.map(({ name }) => name) };
}

/** A line for each limit that is passed. */
export function overLimits(found: ReturnType<typeof counts>): string[] {
  const more = (['doors', 'names'] as const).filter((each) => found[each] > limits[each]);
  const said = more.map((each) => `${found[each]} ${each}, and ${limits[each]} are the most`);
  return [...said, ...found.silent.map((name) => `${name} has no sentence`)];
}

export const file: string = 'docs/reference/api.md';

if (import.meta.main) {
  writeFileSync(join(root, file), apiPage());
  console.log(counts());
}
