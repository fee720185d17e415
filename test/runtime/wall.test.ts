import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { type Breach, findBreaches, type WallRules } from './wallScan.ts';

const root = fileURLToPath(new URL('../..', import.meta.url)).replace(/[\\/]$/, '');
const rules: WallRules = {
  folder: 'src/runtime',
  mayImport: ['src/runtime'],
  typesOnly: {
    'src/runtime/tier/tierStore.ts': ['Promise', 'AsyncDisposable'],
  },
};

test('src/runtime imports nothing from outside and has no I/O, clock, randomness, timer or promise', () => {
  const breaches = findBreaches(root, rules);
  expect(breaches.map((each) => `${each.path}:${each.line} ${each.problem}`)).toEqual([]);
});

/** Sources that must be refused, by what the scan says of them. Each stands in a file of its own. */
const refused: readonly (readonly [source: string, problem: string])[] = [
  ["import { readFileSync } from 'node:fs';\nreadFileSync('x');", 'import of node:fs'],
  ["import type { Stats } from 'node:fs';\nexport type T = Stats;", 'import of node:fs'],
  ["export * from '../../backends/index.ts';", 'import of ../../backends/index.ts'],
  ["export { x } from '../../sim/index.ts';", 'import of ../../sim/index.ts'],
  ["import {} from '../../runtimes/index.ts';", 'import of ../../runtimes/index.ts'],
  ["import '../../runtime/../cli/main.ts';", 'import of ../../runtime/../cli/main.ts'],
  ["import 'webgpu';", 'import of webgpu'],
  ["export type G = import('@webgpu/types').GPU;", 'import of @webgpu/types'],
  ["import fs = require('fs');\nexport const x = fs;", 'import of fs'],
  ["export const x = import('../errors.ts');", 'dynamic import'],
  ['export const x = import.meta.url;', 'import.meta'],
  ["export const x = require('fs');", 'global require'],
  ['/// <reference types="node" />\nexport const x = 1;', 'reference directive to node'],
  ['export const x = Date.now();', 'global Date'],
  ['export const x = new Date();', 'global Date'],
  ['export type T = Date;', 'global Date'],
  ['export const x = performance.now();', 'global performance'],
  ['export const x = Math.random();', 'Math.random, or Math by another name'],
  ["export const x = Math['random']();", 'Math.random, or Math by another name'],
  ['const { random } = Math;\nexport const x = random();', 'Math.random, or Math by another name'],
  ['const m = Math;\nexport const x = m.random();', 'Math.random, or Math by another name'],
  ['export const x = { Math };', 'Math.random, or Math by another name'],
  ['export const x = crypto.getRandomValues(new Uint8Array(1));', 'global crypto'],
  ['setTimeout(() => {}, 1);', 'global setTimeout'],
  ['setInterval(() => {}, 1);', 'global setInterval'],
  ['setImmediate(() => {});', 'global setImmediate'],
  ['queueMicrotask(() => {});', 'global queueMicrotask'],
  ['export const x = Promise.resolve(1);', 'global Promise'],
  ['export type T = Promise<number>;', 'global Promise'],
  ['export const x = (then: PromiseLike<number>): unknown => then;', 'global PromiseLike'],
  ['export const x = async (): Promise<void> => {};', 'async function'],
  ['export class A { async run(): Promise<void> {} }', 'async function'],
  ['export async function* x() { yield 1; }', 'async function'],
  ['await 1;', 'await'],
  ['for await (const x of [1]) x;', 'await'],
  ['await using x = { async [Symbol.asyncDispose]() {} };\nexport const y = x;', 'await using'],
  ['export const x = process.pid;', 'global process'],
  ['export const x = { process };', 'global process'],
  [`export const x = \`\${process.pid}\`;`, 'global process'],
  ["console.log('x');", 'global console'],
  ['export const x = globalThis;', 'global globalThis'],
  ["export const x = (globalThis as never)['Date'];", 'global globalThis'],
  ["export const x = eval('1');", 'global eval'],
  ["export const x = new Function('return 1');", 'global Function'],
  ["export const x = (() => 1).constructor('return Date')();", 'member constructor'],
  ["export const x = (() => 1)['constructor'];", 'member constructor'],
  ['const { constructor } = () => 1;\nexport const x = constructor;', 'member constructor'],
  ['const { constructor: make } = () => 1;\nexport const x = make;', 'member constructor'],
  [
    'declare const performance: { now(): number };\nexport const x = performance.now();',
    'declare: a name that something outside provides',
  ],
  [
    'declare global { var now: number }\nexport const x = now;',
    'declare: a name that something outside provides',
  ],
  ['export const x = new WeakRef({});', 'global WeakRef'],
  ['export const x = new FinalizationRegistry(() => {});', 'global FinalizationRegistry'],
  ['export const x = Atomics.wait(new Int32Array(4), 0, 0, 1);', 'global Atomics'],
  ['export const x = new Intl.NumberFormat();', 'global Intl'],
  ["export const x = 'a'.localeCompare('b');", 'member localeCompare'],
  ['export const x = Array.fromAsync([1]);', 'member fromAsync'],
  ['export const f = (x: { then(): void }): void => x.then();', 'member then'],
  ['export const x = (1).toLocaleString();', 'member toLocaleString'],
  ['export const x = navigator;', 'global navigator'],
  ['export type T = GPUDevice;', 'global GPUDevice'],
  ['export const x: Buffer = 1;', 'global Buffer'],
  ["fetch('x');", 'global fetch'],
  ['export const x = typeof Date;', 'global Date'],
  ['export const x = (date = Date): unknown => date;', 'global Date'],
  ['export class A extends Date {}', 'global Date'],
];

/** Sources that only look like breaches. */
const allowed: readonly string[] = [
  '// Date.now() process.exit() await\n/* import fs from "node:fs" */\nexport const x = 1;',
  '/** Math.random, {@link Promise}, @see Date */\nexport const x = 1;',
  'export const x = \'Date.now() process async await require("fs")\';',
  `export const x = \`performance.now() \${1 + 1} setTimeout\`;`,
  'export const x = /Date|process|console/.test("a") ? 4 / 2 / 1 : 0;',
  'export function f(process: number, performance: number): number { return process + performance; }',
  'export class A { Date = 1; process(): number { return this.Date; } }',
  'export const x = { Date: 1, console: 2, setTimeout: 3 }.setTimeout;',
  'interface Row { process: number; Promise: string }\nexport const f = ({ process: p }: Row): number => p;',
  'class Date {}\nexport const x = new Date();',
  'export class A { constructor() { Object.freeze(this); } }',
  'export const x = Math.floor(Math.max(1.5, Math.PI));',
  'export const x = ["a", 1] as const;\nouter: for (const y of x) { if (y === 1) continue outer; }',
  "import { TierKVError } from '../errors.ts';\nexport type { Tier } from '../tier.ts';\nexport const x = TierKVError;",
  "export type T = import('../tier/tier.ts').Tier;",
  'export type Pair<T> = { readonly [K in keyof T]: Partial<Record<string, T[K]>> };',
  'export function f(x: unknown): asserts x is number { if (x === undefined) throw new RangeError("x"); }',
  'export class A { #open = true; [Symbol.dispose](): void { this.#open = false; } get open(): boolean { return this.#open; } }',
];

describe('the scan itself', () => {
  const probe = (kind: string, i: number): string => `src/runtime/wallProbe/${kind}${i}.ts`;
  const sources: Record<string, string> = {};
  for (const [i, [source]] of refused.entries()) sources[probe('refused', i)] = source;
  for (const [i, source] of allowed.entries()) sources[probe('allowed', i)] = source;
  sources['src/runtime/wallProbe/data.js'] = 'export const x = 1;';
  const tierStore = 'src/runtime/wallProbe/store.ts';
  sources[tierStore] =
    'export interface Store extends AsyncDisposable { read(): Promise<number>; }\n' +
    'export const x: Promise<number> = Promise.resolve(1);\n' +
    'export class S implements AsyncDisposable {}';
  const breachesByPath = new Map<string, Breach[]>();
  const typesOnly = { [tierStore]: ['Promise', 'AsyncDisposable'] };
  for (const breach of findBreaches(root, { ...rules, typesOnly }, sources)) {
    breachesByPath.set(breach.path, [...(breachesByPath.get(breach.path) ?? []), breach]);
  }
  const problemsOf = (path: string): string[] =>
    (breachesByPath.get(path) ?? []).map((breach) => breach.problem);

  test.each(refused.map(([source, problem], i) => [problem, source, i] as const))(
    'refuses %s in: %s',
    (problem, _, i) => {
      expect(problemsOf(probe('refused', i))).toContain(problem);
    },
  );

  test.each(allowed.map((source, i) => [source, i] as const))('lets through: %s', (_, i) => {
    expect(problemsOf(probe('allowed', i))).toEqual([]);
  });

  test('lets a file that may name Promise in types do just that, and names the line where it goes further', () => {
    expect(breachesByPath.get(tierStore)).toEqual([
      { path: tierStore, line: 2, problem: 'global Promise' },
      { path: tierStore, line: 3, problem: 'global AsyncDisposable' },
    ]);
  });

  test('refuses source that TypeScript does not check', () => {
    expect(problemsOf('src/runtime/wallProbe/data.js')).toEqual(['must be a TypeScript source']);
  });
});
