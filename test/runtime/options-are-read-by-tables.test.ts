/**
 * A table has each option of its type with kind, range and default; TypeScript refuses a table that does not agree with the
 * type. What a table reads is whole, and what it refuses is named.
 */

import { expect, it } from 'vitest';
import * as is from '../../src/runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../src/runtime/options.ts';

interface Limits {
  readonly workers?: number;
  readonly wallMs: number;
  readonly heapMiB?: number | undefined;
  readonly notice?: (line: string) => void;
  readonly mode?: 'warm' | 'empty';
  readonly place?: { readonly dir: string };
  readonly names?: readonly string[];
  readonly tenant: string | null;
}

const limits = optionTable(
  {
    workers: is.optional(is.integer(1, 64), 4),
    wallMs: is.positive(),
    heapMiB: is.optional(is.positive()),
    notice: is.optional(is.func()),
    mode: is.optional(is.oneOf(['warm', 'empty']), 'warm'),
    place: is.optional(optionTable({ dir: is.name('Name a directory.') })),
    names: is.optional(is.list(is.text())),
    tenant: is.orNull(is.name()),
  } satisfies Kinds<Limits>,
  'TKV_CONFIG',
);

it('gives what was given, and the defaults of what was left out', () => {
  const read = limits.read({ wallMs: 5, tenant: null, heapMiB: undefined });
  // the types say that an option with a default is always there
  const workers: number = read.workers;
  const mode: 'warm' | 'empty' = read.mode;
  expect([workers, mode]).toEqual([4, 'warm']);
  expect(read).toEqual({ workers: 4, mode: 'warm', wallMs: 5, tenant: null });
  expect(Object.hasOwn(read, 'heapMiB')).toBe(false);
  const given = { wallMs: 1, tenant: 'a', place: { dir: '/x' }, names: ['b'], mode: 'empty' } as const;
  expect(limits.read(given)).toEqual({ workers: 4, ...given });
});

it.each<[what: string, options: unknown, code: string, field: string, message: RegExp]>([
  ['no object', 7, 'TKV_CONFIG', 'limits', /limits must be an object, and it is 7\. Pass \{ tenant \}\.$/],
  ['a list', [], 'TKV_CONFIG', 'limits', /it is an array/],
  ['an unknown name', { worker: 1 }, 'TKV_CONFIG', 'limits.worker', /Did you mean 'workers'\?$/],
  ['a far name', { xyzzyx: 1 }, 'TKV_CONFIG', 'limits.xyzzyx', /The names are workers, wallMs, .*tenant\.$/],
  ['null', { workers: null }, 'TKV_CONFIG', 'limits.workers', /is null\. Give it a value/],
  ['what is missing', { tenant: 'a' }, 'TKV_CONFIG', 'limits.wallMs', /is undefined, not a positive/],
  ['a range', { wallMs: 1, tenant: 'a', workers: 65 }, 'TKV_CONFIG', 'limits.workers', /from 1 to 64/],
  ['a kind', { wallMs: 1, tenant: 5 }, 'TKV_CONFIG', 'limits.tenant', /must be text .* it is 5/],
  ['a name', { wallMs: 1, tenant: 'a', mode: 'warn' }, 'TKV_CONFIG', 'limits.mode', /Did you mean 'warm'/],
  [
    'an inner name',
    { wallMs: 1, tenant: 'a', place: { dit: '' } },
    'TKV_CONFIG',
    'limits.place.dit',
    /'dir'/,
  ],
  [
    'an inner value',
    { wallMs: 1, tenant: 'a', place: { dir: '' } },
    'TKV_CONFIG',
    'limits.place.dir',
    /empty/,
  ],
  ['an element', { wallMs: 1, tenant: 'a', names: ['b', 7n] }, 'TKV_CONFIG', 'limits.names[1]', /it is 7n/],
])('refuses %s', (_, options, code, field, message) => {
  expect(() => limits.read(options, 'limits')).toThrow(expect.objectContaining({ code, field }));
  expect(() => limits.read(options, 'limits')).toThrow(message);
});

it('names an option of `options` and `config` by itself', () => {
  expect(() => limits.read({ worker: 1 }, 'config')).toThrow(expect.objectContaining({ field: 'worker' }));
});

it('checks without a copy what runs once a token', () => {
  const options = { wallMs: 1, tenant: 'a' } as Parameters<typeof limits.check>[0];
  expect(limits.check(options, 'limits')).toBe(options);
  expect(() => limits.check({ ...options, workers: 0 }, 'limits')).toThrow(/limits\.workers is 0/);
});

it('checks the arguments of a call by the same kinds', () => {
  const kinds = { token: is.integer(0), extras: is.optional(is.object()) };
  expect(() => checkInputs({ token: 1, extras: undefined }, kinds)).not.toThrow();
  expect(() => checkInputs({ token: 1, extras: [] }, kinds)).toThrow(
    expect.objectContaining({ code: 'TKV_INPUT', field: 'extras' }),
  );
});

it('does not compile where it does not agree with the type', () => {
  interface Pair {
    readonly a: number;
    readonly b?: string;
  }
  expect([
    // @ts-expect-error b is missing
    optionTable({ a: is.number() } satisfies Kinds<Pair>),
    // @ts-expect-error c is not an option
    optionTable({ a: is.number(), b: is.optional(is.text()), c: is.text() } satisfies Kinds<Pair>),
    // @ts-expect-error a is a number
    optionTable({ a: is.text(), b: is.optional(is.text()) } satisfies Kinds<Pair>),
    // @ts-expect-error b may be left out
    optionTable({ a: is.number(), b: is.text() } satisfies Kinds<Pair>),
    // @ts-expect-error a may not be left out
    optionTable({ a: is.optional(is.number()), b: is.optional(is.text()) } satisfies Kinds<Pair>),
    // @ts-expect-error the default is text
    optionTable({ a: is.number(), b: is.optional(is.text(), 7) } satisfies Kinds<Pair>),
  ]).toHaveLength(6);
});
