/**
 * Every export of every door, by reflection, with values of the wrong kind in every place: an error of tierkv with code,
 * field and remedy, or, for the calls named below, no error at all. An export that is new is in the sweep at once.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { doors as allDoors } from './doors.ts';
import { inner, parts, takesAnything } from './exportsOfDoors.ts';

const wrongs: readonly unknown[] = [
  ...[undefined, null, -1, 1.5, Number.NaN, 2 ** 60, 7n, '', 'text', true, Symbol('s')],
  ...[[], [1, 'x'], {}, Object.create(null), () => 7, new Map(), new Uint8Array(3)],
];
const named = (value: unknown): string =>
  typeof value === 'symbol' || typeof value === 'bigint' || typeof value === 'function'
    ? typeof value
    : typeof value === 'object' && value !== null
      ? Object.prototype.toString.call(value)
      : String(value);

const doors: Record<string, Record<string, unknown>> = {};
for (const { name, file } of allDoors()) {
  doors[name] = (await import(`../../${file}`)) as Record<string, unknown>;
}

// a text may be a path for a call: what it makes lies in a folder of its own
const home = process.cwd();
const scratch = mkdtempSync(join(tmpdir(), 'tierkv-doors-'));
beforeAll(() => process.chdir(scratch));
afterAll(() => {
  process.chdir(home);
  rmSync(scratch, { recursive: true });
});

type Call = (...values: unknown[]) => unknown;
const isClass = (value: object): boolean => /^class\b/.test(Function.prototype.toString.call(value));

/** What a person can call of an export: a function; a class with `new`, and its static functions. */
function callsOf(name: string, value: unknown): [string, Call][] {
  if (typeof value !== 'function') return [];
  if (!isClass(value)) return [[name, (...values) => (value as Call)(...values)]];
  const statics = Object.getOwnPropertyNames(value).filter(
    (key) => key !== 'prototype' && typeof Reflect.get(value, key) === 'function',
  );
  const made: [string, Call][] = isMade(value)
    ? []
    : [[`new ${name}`, (...values) => Reflect.construct(value, values) as unknown]];
  return [
    ...made,
    ...statics.map((key): [string, Call] => [
      `${name}.${key}`,
      (...values) => (Reflect.get(value, key) as Call).apply(value, values),
    ]),
  ];
}

/** Types hide the constructor of a class that has `open`, `begin` or `resume`. */
const isMade = (value: object): boolean => ['open', 'begin'].some((name) => Object.hasOwn(value, name));

const seen = new Set<unknown>();
const rows = Object.entries(doors).flatMap(([door, exports]) =>
  Object.entries(exports).flatMap(([name, value]) => {
    if (seen.has(value)) return [];
    seen.add(value);
    return callsOf(name, value).map(([label, call]) => ({ door, label, call }));
  }),
);

async function failureOf(call: Call, values: readonly unknown[]): Promise<unknown> {
  try {
    const result = await call(...values);
    // what is generated is asked for its first
    const { next } = (result ?? {}) as Partial<Iterator<unknown>>;
    if (typeof next === 'function') await next.call(result);
    return undefined;
  } catch (error) {
    return error;
  }
}

const isInner = (label: string): boolean => inner.has(label.replace(/^new /, ''));
const checked = rows.filter(({ label }) => !isInner(label));

it('the lists name what is there', () => {
  const labels = new Set(rows.map(({ label }) => label.replace(/^new /, '')));
  expect([...inner].filter((name) => !labels.has(name))).toEqual([]);
  expect(Object.keys(takesAnything).filter((name) => !labels.has(name))).toEqual([]);
  expect(parts.flatMap(({ names, reason }) => (reason.length < 20 ? names : []))).toEqual([]);
});

it.each(checked)('$door $label', async ({ label, call }) => {
  const name = label.replace(/^new /, '');
  const accepted: string[] = [];
  for (const wrong of wrongs) {
    const error = await failureOf(call, [wrong, wrong, wrong, wrong, wrong]);
    const what = `${label} of ${named(wrong)}: ${String(error)}`;
    if (error === undefined) {
      accepted.push(named(wrong));
      continue;
    }
    expect(error, what).toMatchObject({ isTierKVError: true });
    expect(String(error), what).toMatch(/^[A-Za-z]*Error: .+\. [A-Z].+/s);
    const { code, field, path, line } = error as {
      code: string;
      field?: string;
      path?: string;
      line?: number;
    };
    expect(code, what).toMatch(/^TKV_/);
    expect(String(field ?? path ?? line ?? ''), what).toMatch(/./);
  }
  const allowed = takesAnything[name] ?? '';
  if (allowed !== 'all')
    expect(
      accepted.filter((kind) => !allowed.includes(kind)),
      label,
    ).toEqual([]);
});
