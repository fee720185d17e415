/**
 * Functions that every Starlark program can call without defining them: the builtin functions and the module `math`.
 * Each checks its arguments and charges the meter before it works.
 */

import { exp, log, pow } from '../../../sim/random/elementary.ts';
import type { Meter } from '../program.ts';
import { compare, elementsOf, exact, FieldSite, getField, repr, str, withKey } from './operations.ts';
import {
  fail,
  isTrue,
  type NamedArguments,
  RecordShape,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRange,
  StarRecord,
  StarTuple,
  typeName,
  type Value,
} from './value.ts';

// `sorted`, `min` and `max`, each with a key.

// `sorted`, `min` and `max`, each with a key.

function keysOf(
  meter: Meter,
  items: readonly Value[],
  key: Value | undefined,
  line: number,
): readonly Value[] {
  if (key === undefined || key === null) return items;
  if (!(key instanceof StarFunction)) return fail(line, `the key is a function, not ${typeName(key)}`);
  return items.map((item) => key.call(meter, [item], [], line));
}

/** Stable, also in reverse. A comparison costs a step. */
function sorted(meter: Meter, positional: readonly Value[], named: NamedArguments, line: number): Value[] {
  const [iterable, key, reverse] = take(
    'sorted',
    ['iterable', '*key?', '*reverse?'],
    positional,
    named,
    line,
  );
  const items = elementsOf(meter, iterable ?? null, line);
  meter.spend(items.length, line);
  const keys = keysOf(meter, items, key, line);
  const sign = reverse !== undefined && isTrue(reverse) ? -1 : 1;
  const order = mergeSort(items.length, (i, j) => {
    meter.spend(1, line);
    return sign * compare(meter, keys[i], keys[j], line);
  });
  return order.map((i) => items[i]);
}

/** A merge sort of our own, so that each engine makes the same comparisons and charges the same steps. */
function mergeSort(length: number, order: (i: number, j: number) => number): number[] {
  let from = Array.from({ length }, (_, i) => i);
  let to: number[] = new Array(length);
  for (let width = 1; width < length; width *= 2) {
    for (let start = 0; start < length; start += 2 * width) {
      const middle = Math.min(start + width, length);
      const end = Math.min(start + 2 * width, length);
      let left = start;
      let right = middle;
      for (let at = start; at < end; at++) {
        const takesLeft = left < middle && (right >= end || order(from[left], from[right]) <= 0);
        to[at] = takesLeft ? from[left++] : from[right++];
      }
    }
    [from, to] = [to, from];
  }
  return from;
}

/** The first of the largest (`sign` 1) or the smallest (-1) elements. */
function extreme(
  builtin: string,
  sign: number,
  meter: Meter,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value {
  const [key] = take(builtin, ['*key?'], [], named, line);
  const items = positional.length === 1 ? elementsOf(meter, positional[0], line) : positional;
  if (items.length === 0) fail(line, `${builtin} gets no values`);
  meter.spend(items.length, line);
  const keys = keysOf(meter, items, key, line);
  let best = 0;
  for (let i = 1; i < items.length; i++) {
    if (sign * compare(meter, keys[i], keys[best], line) > 0) best = i;
  }
  return items[best];
}

// The functions of the language:
// https://github.com/bazelbuild/starlark/blob/master/spec.md#built-in-functions.

type Body = (meter: Meter, positional: readonly Value[], named: NamedArguments, line: number) => Value;

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

const functions: Readonly<Record<string, Body>> = {
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
function functionValues(): Map<string, StarFunction> {
  return new Map(Object.entries(functions).map(([name, body]) => [name, new StarFunction(name, body)]));
}

// The module `math`. Its functions are the project's own elementary functions, so that a policy computes the
// same bits in every engine.

function real(name: string, compute: (x: number, line: number) => number): StarFunction {
  return new StarFunction(`math.${name}`, (_, positional, named, line) => {
    const [x] = take(`math.${name}`, ['x'], positional, named, line);
    return new StarFloat(compute(numberOf(`math.${name}`, x, line), line));
  });
}

function whole(name: string, compute: (x: number) => number): StarFunction {
  return new StarFunction(`math.${name}`, (_, positional, named, line) => {
    const [x] = take(`math.${name}`, ['x'], positional, named, line);
    return exact(compute(numberOf(`math.${name}`, x, line)), line);
  });
}

const members: Readonly<Record<string, Value>> = {
  ceil: whole('ceil', Math.ceil),
  floor: whole('floor', Math.floor),
  round: whole('round', (x) => Math.sign(x) * Math.floor(Math.abs(x) + 0.5)),
  exp: real('exp', exp),
  fabs: real('fabs', Math.abs),
  log: new StarFunction('math.log', (_, positional, named, line) => {
    const [x, base] = take('math.log', ['x', 'base?'], positional, named, line);
    const value = logarithm(numberOf('math.log', x, line), line);
    if (base === undefined) return new StarFloat(value);
    const divisor = logarithm(numberOf('math.log', base, line), line);
    if (divisor === 0) fail(line, 'the base of a logarithm is 1');
    return new StarFloat(value / divisor);
  }),
  pow: new StarFunction('math.pow', (_, positional, named, line) => {
    const [x, y] = take('math.pow', ['x', 'y'], positional, named, line);
    return new StarFloat(pow(numberOf('math.pow', x, line), numberOf('math.pow', y, line)));
  }),
  sqrt: real('sqrt', (x, line) => (x < 0 ? fail(line, 'math.sqrt takes no negative number') : Math.sqrt(x))),
  e: new StarFloat(Math.E),
  pi: new StarFloat(Math.PI),
  inf: new StarFloat(Number.POSITIVE_INFINITY),
};

function logarithm(x: number, line: number): number {
  return x > 0 ? log(x) : fail(line, `math.log takes a number over 0, not ${x}`);
}

const mathModule: StarRecord = new StarRecord(
  new RecordShape('math', Object.fromEntries(Object.keys(members).map((name) => [name, 'value' as const]))),
  Object.values(members),
);

/** Names of a program's surroundings, and what they stand for. */
export const builtins: ReadonlyMap<string, Value> = new Map<string, Value>([
  ...functionValues(),
  ['None', null],
  ['True', true],
  ['False', false],
  ['math', mathModule],
]);

// Arguments of a builtin, by position or by name.

/** A list of parameters, parsed once. */
interface BuiltinSignature {
  readonly names: readonly string[];
  readonly isOptional: readonly boolean[];
  /** Leading parameters that may be given by position. */
  readonly positionalCount: number;
}

const signatures = new Map<string, BuiltinSignature>();

function signatureOf(builtin: string, parameters: readonly string[]): BuiltinSignature {
  let signature = signatures.get(builtin);
  if (signature === undefined || signature.names.length !== parameters.length) {
    signature = {
      names: parameters.map((each) => each.replace(/[*?]/g, '')),
      isOptional: parameters.map((each) => each.endsWith('?')),
      positionalCount: parameters.filter((each) => !each.startsWith('*')).length,
    };
    signatures.set(builtin, signature);
  }
  return signature;
}

/**
 * Takes arguments by the list of parameter names; a name that ends in `?` may be missing, one that begins
 * with `*` is taken by name only. Missing ones are `undefined`.
 *
 * @throws PolicyError policy_runtime with the builtin's name
 */
export function take(
  builtin: string,
  parameters: readonly string[],
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): readonly (Value | undefined)[] {
  const { names, isOptional, positionalCount } = signatureOf(builtin, parameters);
  if (positional.length > positionalCount) {
    fail(line, `${builtin} takes at most ${positionalCount} arguments by position, not ${positional.length}`);
  }
  if (named.length === 0 && positional.length === names.length) return positional;
  const values: (Value | undefined)[] = names.map((_, i) => positional[i]);
  for (const [name, value] of named) {
    const i = names.indexOf(name);
    if (i < 0) fail(line, `${builtin} has no argument ${name}`);
    if (values[i] !== undefined) fail(line, `${builtin} gets its argument ${name} twice`);
    values[i] = value;
  }
  for (let i = 0; i < names.length; i++) {
    if (!isOptional[i] && values[i] === undefined) fail(line, `${builtin} lacks its argument ${names[i]}`);
  }
  return values;
}

export function textOf(builtin: string, value: Value | undefined, line: number): string {
  return typeof value === 'string' ? value : fail(line, `${builtin} takes a string, not ${nameOf(value)}`);
}

export function integerOf(builtin: string, value: Value | undefined, line: number): number {
  return typeof value === 'number' ? value : fail(line, `${builtin} takes an int, not ${nameOf(value)}`);
}

/** An int or a float, as a JavaScript number. */
function numberOf(builtin: string, value: Value | undefined, line: number): number {
  if (typeof value === 'number') return value;
  if (value instanceof StarFloat) return value.value;
  return fail(line, `${builtin} takes a number, not ${nameOf(value)}`);
}

function nameOf(value: Value | undefined): string {
  return value === undefined ? 'nothing' : typeName(value);
}

// Numbers out of text: `int("12", 16)`, `float("1e3")`.

const INTEGER = /^([+-]?)(0[xX]|0[oO]|0[bB])?([0-9a-zA-Z]+)$/;
const FLOAT = /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/;

const bases: Readonly<Record<string, number>> = { '0x': 16, '0o': 8, '0b': 2 };

/** Base 0 takes the base from the prefix. */
function parseIntText(text: string, base: number, line: number): number {
  if (base !== 0 && (base < 2 || base > 36)) fail(line, `the base ${base} is not 0 or from 2 to 36`);
  const match = INTEGER.exec(text);
  if (match === null || text.length > 100) return fail(line, `${quoted(text)} is not an int`);
  const [, sign, prefix = '', digits] = match;
  const prefixBase = bases[prefix.toLowerCase()] ?? 10;
  const usesPrefix = prefix !== '' && (base === 0 || base === prefixBase);
  const actual = base === 0 ? prefixBase : base;
  const body = usesPrefix ? digits : prefix + digits;
  let value = 0;
  for (const c of body.toLowerCase()) {
    const digit = Number.parseInt(c, 36);
    if (digit >= actual) fail(line, `${quoted(text)} is not an int of base ${actual}`);
    value = exact(value * actual + digit, line);
  }
  return sign === '-' ? -value || 0 : value;
}

function parseFloatText(text: string, line: number): number {
  const special = /^([+-]?)(inf|infinity|nan)$/i.exec(text);
  if (special !== null) {
    if (special[2].toLowerCase() === 'nan') return Number.NaN;
    return special[1] === '-' ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  }
  if (!FLOAT.test(text)) fail(line, `${quoted(text)} is not a float`);
  const value = Number(text);
  return Number.isFinite(value) ? value : fail(line, `${quoted(text)} is too large for a float`);
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, 40));
}
