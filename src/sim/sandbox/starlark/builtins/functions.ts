/**
 * The functions of the language:
 * https://github.com/bazelbuild/starlark/blob/master/spec.md#built-in-functions.
 */

import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import {
  elementsOf,
  exact,
  FieldSite,
  getField,
  isTrue,
  type NamedArguments,
  repr,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRange,
  StarRecord,
  StarTuple,
  str,
  typeName,
  type Value,
  withKey,
} from '../values/index.ts';
import { parseFloatText, parseIntText } from './numberText.ts';
import { integerOf, take, textOf } from './parameters.ts';
import { extreme, sorted } from './sorting.ts';

export type Body = (meter: Meter, positional: readonly Value[], named: NamedArguments, line: number) => Value;

/** Elements of an iterable; each costs a step. */
export function iterate(meter: Meter, value: Value | undefined, line: number): readonly Value[] {
  const items = elementsOf(meter, value === undefined ? null : value, line);
  meter.spend(items.length, line);
  return items;
}

export function listOf(meter: Meter, items: Value[], line: number): StarList {
  meter.allocate(1 + items.length, line);
  return new StarList(items);
}

export function tupleOf(meter: Meter, items: Value[], line: number): StarTuple {
  meter.allocate(1 + items.length, line);
  return new StarTuple(items);
}

function one(name: string, body: (meter: Meter, value: Value, line: number) => Value): Body {
  return (meter, positional, named, line) => {
    const [value] = take(name, ['x'], positional, named, line);
    return body(meter, value === undefined ? null : value, line);
  };
}

export const functions: Readonly<Record<string, Body>> = {
  abs: one('abs', (_, x, line) => {
    if (typeof x === 'number') return Math.abs(x);
    if (x instanceof StarFloat) return new StarFloat(Math.abs(x.value));
    return fail(line, `abs takes a number, not ${typeName(x)}`);
  }),
  all: one('all', (meter, x, line) => iterate(meter, x, line).every(isTrue)),
  any: one('any', (meter, x, line) => iterate(meter, x, line).some(isTrue)),
  bool: (_, positional, named, line) => isTrue(take('bool', ['x?'], positional, named, line)[0] ?? false),
  dict: (meter, positional, named, line) => makeDict(meter, positional, named, line),
  enumerate: (meter, positional, named, line) => {
    const [iterable, start] = take('enumerate', ['iterable', 'start?'], positional, named, line);
    const first = start === undefined ? 0 : integerOf('enumerate', start, line);
    const items = iterate(meter, iterable, line);
    return listOf(
      meter,
      items.map((item, i) => tupleOf(meter, [first + i, item], line)),
      line,
    );
  },
  fail: (meter, positional, _, line) =>
    fail(
      line,
      `the policy gives up: ${positional
        .map((x) => str(meter, x, line))
        .join(' ')
        .slice(0, 200)}`,
    ),
  float: (meter, positional, named, line) => {
    const x = take('float', ['x?'], positional, named, line)[0] ?? 0;
    if (typeof x === 'string') {
      spendNumberText(meter, x, line);
      return new StarFloat(parseFloatText(x, line));
    }
    if (typeof x === 'number' || typeof x === 'boolean') return new StarFloat(Number(x));
    return x instanceof StarFloat ? x : fail(line, `float takes a number or a string, not ${typeName(x)}`);
  },
  getattr: (_, positional, named, line) => {
    const [object, name, otherwise] = take('getattr', ['x', 'name', 'default?'], positional, named, line);
    const field = textOf('getattr', name, line);
    const known = object instanceof StarRecord && object.shape.indexOf(field) >= 0;
    if (!known && otherwise !== undefined) return otherwise;
    const value = getField(object ?? null, new FieldSite(field, line));
    return value === undefined ? fail(line, `${typeName(object ?? null)} has no field ${field}`) : value;
  },
  hasattr: (_, positional, named, line) => {
    const [object, name] = take('hasattr', ['x', 'name'], positional, named, line);
    return object instanceof StarRecord && object.shape.indexOf(textOf('hasattr', name, line)) >= 0;
  },
  int: (meter, positional, named, line) => {
    const [x = 0, base] = take('int', ['x?', 'base?'], positional, named, line);
    if (typeof x === 'string') {
      spendNumberText(meter, x, line);
      return parseIntText(x, base === undefined ? 10 : integerOf('int', base, line), line);
    }
    if (base !== undefined) fail(line, 'int takes a base for a string only');
    if (typeof x === 'number' || typeof x === 'boolean') return Number(x);
    if (x instanceof StarFloat) return exact(Math.trunc(x.value), line);
    return fail(line, `int takes a number or a string, not ${typeName(x)}`);
  },
  len: one('len', (_, x, line) => {
    if (typeof x === 'string') return x.length;
    if (x instanceof StarList || x instanceof StarTuple) return x.items.length;
    if (x instanceof StarDict) return x.size;
    return x instanceof StarRange ? x.length : fail(line, `${typeName(x)} has no length`);
  }),
  list: (meter, positional, named, line) => {
    const [x] = take('list', ['iterable?'], positional, named, line);
    return listOf(meter, x === undefined ? [] : [...iterate(meter, x, line)], line);
  },
  max: (meter, positional, named, line) => extreme('max', 1, meter, positional, named, line),
  min: (meter, positional, named, line) => extreme('min', -1, meter, positional, named, line),
  range: (_, positional, named, line) => makeRange(positional, named, line),
  repr: one('repr', (meter, x, line) => repr(meter, x, line)),
  reversed: one('reversed', (meter, x, line) => listOf(meter, [...iterate(meter, x, line)].reverse(), line)),
  sorted: (meter, positional, named, line) => listOf(meter, sorted(meter, positional, named, line), line),
  str: one('str', (meter, x, line) => str(meter, x, line)),
  tuple: (meter, positional, named, line) => {
    const [x] = take('tuple', ['iterable?'], positional, named, line);
    return tupleOf(meter, x === undefined ? [] : [...iterate(meter, x, line)], line);
  },
  type: one('type', (_, x) => typeName(x)),
  zip: (meter, positional, named, line) => {
    take('zip', [], [], named, line);
    const lists = positional.map((each) => iterate(meter, each, line));
    const length = lists.length === 0 ? 0 : Math.min(...lists.map((each) => each.length));
    const rows = Array.from({ length }, (_, i) =>
      tupleOf(
        meter,
        lists.map((each) => each[i]),
        line,
      ),
    );
    return listOf(meter, rows, line);
  },
};

/** A number of a usual length is read for nothing. */
function spendNumberText(meter: Meter, text: string, line: number): void {
  if (text.length > 32) meter.spend(text.length, line);
}

function makeDict(meter: Meter, positional: readonly Value[], named: NamedArguments, line: number): StarDict {
  const dict = new StarDict();
  const [source] = take('dict', ['pairs?'], positional, [], line);
  if (source !== undefined) fillDict(meter, dict, source, line);
  meter.allocate(1 + 2 * named.length, line);
  for (const [name, value] of named) dict.set(name, value);
  return dict;
}

/** Adds the entries of a dict, or pairs of key and value. */
export function fillDict(meter: Meter, dict: StarDict, source: Value, line: number): void {
  const pairs = source instanceof StarDict ? [...source.entries()] : iterate(meter, source, line);
  meter.spend(pairs.length, line);
  meter.allocate(2 * pairs.length, line);
  for (const pair of pairs) {
    const items = Array.isArray(pair) ? pair : elementsOf(meter, pair as Value, line);
    if (items.length !== 2) fail(line, `an entry of a dict is a pair, not ${items.length} values`);
    const [key, value] = items as readonly [Value, Value];
    withKey(meter, line, key, () => dict.set(key, value));
  }
}

function makeRange(positional: readonly Value[], named: NamedArguments, line: number): StarRange {
  const [a, b, c] = take('range', ['start', 'stop?', 'step?'], positional, named, line);
  const first = integerOf('range', a, line);
  const start = b === undefined ? 0 : first;
  const stop = b === undefined ? first : integerOf('range', b, line);
  const step = c === undefined ? 1 : integerOf('range', c, line);
  if (step === 0) fail(line, 'the step of a range is 0');
  return new StarRange(start, step, Math.max(0, Math.ceil((stop - start) / step)));
}

/** The functions as values. */
export function functionValues(): Map<string, StarFunction> {
  return new Map(Object.entries(functions).map(([name, body]) => [name, new StarFunction(name, body)]));
}
