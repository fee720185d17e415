/** The rules of the house (CONTRIBUTING.md), held on the sources as they are, and each shown to fail on a source that breaks it. */

import { expect, it } from 'vitest';
import { debts, rules } from './exceptions.ts';
import { root, tidyFindings } from './tidyProject.ts';
import { findUntidy, type Rule } from './tidyScan.ts';

it('the sources and docs keep the rules of the house', () => {
  const { files, places, phrases } = tidyFindings();
  expect(files).toBeGreaterThan(300);
  const told = new Map(places.map((finding) => [`${finding.rule} ${finding.at}`, finding.problem]));
  expect([...told].filter(([place]) => debts.places[place] === undefined)).toEqual([]);
  expect(Object.keys(debts.places).filter((place) => !told.has(place))).toEqual([]);
  expect([...phrases].filter(([file, count]) => count > (debts.phrases[file] ?? 0))).toEqual([]);
});

it('each rule is shown to fail', () => {
  const all: Readonly<Record<Rule, true>> = {
    ...{ size: true, folder: true, layer: true, room: true, 'one-subclass': true, forwarding: true },
    ...{ 'type-name': true, 'variant-name': true, 'command-line': true, phrase: true, circle: true },
    ...{ 'one-mechanism': true, export: true, message: true, flag: true, 'knob-name': true, check: true },
  };
  expect([...new Set(broken.map(([rule]) => rule))].sort()).toEqual(Object.keys(all).sort());
  // the layers are the rooms
  expect(rules.layers).toHaveLength(rules.mostRooms);
});

const manyLines = 'export const x = 1;\n'.repeat(700);

/** Sources that break one rule each. */
const broken: readonly (readonly [rule: Rule, sources: Readonly<Record<string, string>>])[] = [
  ['size', { 'src/a/long.ts': manyLines }],
  [
    'size',
    {
      'src/a/short.ts': 'export const x = 1;\n',
      'src/a/user.ts': `import { x } from './short.ts';\n${manyLines.slice(0, 4000)}export const y = x;`,
    },
  ],
  ['folder', { 'src/a/b/c/d/deep.ts': 'export const x = 1;' }],
  ['folder', { 'src/a/Not-Camel.ts': 'export const x = 1;' }],
  [
    'layer',
    {
      'src/runtime/x.ts': "import type { Y } from '../sim/y.ts';\nexport type X = Y;",
      'src/sim/y.ts': 'export interface Y { a: 1 }',
    },
  ],
  [
    'layer',
    {
      'src/sim/x.ts': "export const x = async () => (await import('../serve/y.ts')).y;",
      'src/serve/y.ts': 'export const y = 1;',
    },
  ],
  ['layer', { 'src/attic/x.ts': 'export const x = 1;' }],
  [
    'room',
    Object.fromEntries(Array.from({ length: 15 }, (_, i) => [`src/room${i}/x.ts`, 'export const x = 1;'])),
  ],
  ['one-subclass', { 'src/a/x.ts': 'export abstract class A {}\nexport class B extends A {}' }],
  [
    'forwarding',
    {
      'src/a/x.ts':
        'export class A { #b = new Map<string, number>(); get(key: string) { return this.#b.get(key); } }',
    },
  ],
  [
    'type-name',
    {
      'src/a/x.ts': 'export interface Row { a: 1 }',
      'src/b/y.ts': 'type Row = 2;\nexport const r: Row = 2;',
    },
  ],
  ['variant-name', { 'src/a/x.ts': 'export interface Sizes { readonly ddrBytes: number }' }],
  ['variant-name', { 'src/a/x.ts': "export const last = 'remote';" }],
  ['variant-name', { 'src/a/x.ts': "export const x = (name: string) => name === 'tidy-probe';" }],
  [
    'command-line',
    {
      'src/a/x.ts': "import { y } from '../cli/y.ts';\nexport const z = y;",
      'src/cli/y.ts': 'export const y = 1;',
    },
  ],
  ['phrase', { 'src/a/x.ts': `// ${['Who', 'ever'].join('')} asks gets an answer.\nexport const x = 1;` }],
  ['phrase', { 'src/a/x.ts': '/** What it holds. */\nexport const x = 1;' }],
  ['phrase', { 'src/a/x.ts': '/**\n * As `open`, at once.\n */\nexport const x = 1;' }],
  ['phrase', { 'src/a/x.ts': '  // By slot.\nexport const x = 1;' }],
  [
    'one-mechanism',
    { 'src/a/x.ts': "import { Worker } from 'node:worker_threads';\nexport const w = new Worker('x');" },
  ],
  [
    'one-mechanism',
    {
      'src/a/x.ts':
        'export const names = optionNames<Limits>({ workers: true });\ninterface Limits { workers: 1 }',
    },
  ],
  ['check', { 'src/a/x.ts': "import * as v from 'valibot';\nexport const text = v.string();" }],
  [
    'check',
    {
      'src/a/x.ts':
        "export function requireName(field: string, value: unknown): string {\n  if (typeof value === 'string') return value;\n  throw new Error(field);\n}",
    },
  ],
  [
    'check',
    {
      'src/a/x.ts':
        'export const even = (value: unknown, field: string): number => Number(value) + field.length;',
    },
  ],
  [
    'export',
    { 'src/a/x.ts': 'const inner = 1;\nexport const one = inner;', 'src/a/y.ts': 'export const y = 1;' },
  ],
  [
    'export',
    {
      'src/a/x.ts': 'export const forTests = 1;',
      'test/a/x.test.ts': "import { forTests } from '../../src/a/x.ts';\nexport const y = forTests;",
    },
  ],
  [
    'circle',
    {
      'src/a/x.ts': "import type { Y } from './y.ts';\nexport type X = Y | 1;",
      'src/a/y.ts': "import type { X } from './x.ts';\nexport type Y = X | 2;",
    },
  ],
  [
    'flag',
    {
      'src/a/x.ts': '// see --tidy-probe\nexport const x = 1;',
      'src/cli/y.ts': "export const y = '--tidy-probe <n>';",
    },
  ],
  [
    'flag',
    {
      'src/a/x.ts': ['export const x = (n: number) => `give $', '{n} with --tidy-probe.`;'].join(''),
      'src/cli/y.ts': "export const y = '--tidy-probe';",
    },
  ],
  ['knob-name', { 'src/a/x.ts': 'export const x = { maxNumSeqs: 1 };' }],
  ['knob-name', { 'src/a/x.ts': "export const x = 'numRequests';" }],
  [
    'message',
    { 'src/a/x.ts': "export const x = (error: Error) => new Error(error.message.replace('a', 'b'));" },
  ],
];

it('a small file with one importer is found, but for a variant in its folder', () => {
  const found = (folder: string): string[] =>
    findUntidy(
      root,
      {
        [`${folder}/short.ts`]: 'export const x = 1;\n',
        'src/a/user.ts': `import { x } from '../../${folder}/short.ts';\n${manyLines.slice(0, 4000)}export const y = x;`,
      },
      rules,
    )
      .filter(({ rule }) => rule === 'size')
      .map(({ at }) => at);
  expect(found('src/runtime/batching')).toEqual(['src/runtime/batching/short.ts']);
  expect(found('src/runtime/eviction')).toEqual([]);
});

it('a value is checked in two ways, and a function that makes an error does not count', () => {
  expect(Object.keys(rules.checks)).toHaveLength(2);
  const error =
    'export class AnyError extends Error {}\nexport const bad = (field: string, value: unknown): AnyError => new AnyError(field + String(value));';
  const inKinds =
    'export function read(value: unknown, field: string): string { return field + String(value); }';
  const found = findUntidy(root, { 'src/a/x.ts': error, 'src/runtime/kinds.ts': inKinds }, rules);
  expect(found.filter(({ rule }) => rule === 'check')).toEqual([]);
});

it.each(broken)('a source that breaks the rule on %s is found', (rule, sources) => {
  const withProbe = { ...rules, variants: { ...rules.variants, 'tidy-probe': ['src/b'] } };
  const findings = findUntidy(root, sources, withProbe).filter((finding) => finding.rule === rule);
  expect(findings.length).toBeGreaterThan(0);
});
