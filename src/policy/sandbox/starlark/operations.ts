/**
 * The operators of Starlark on values: text forms, elements and fields, arithmetic, equality and order,
 * iteration. Each charges the meter for work that grows with its operands, before it works. Failures are
 * errors with a line and a remedy.
 */

import type { Meter } from '../program.ts';
import {
  fail,
  hashOfTuple,
  MAX_VALUE_DEPTH,
  type RecordShape,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRange,
  StarRecord,
  StarTuple,
  typeName,
  UnhashableError,
  type Value,
} from './value.ts';

// Values as text: `str`, `repr`, and the numbers in them.

/** `str(value)`: a string as it is, any other value as `repr` shows it. */
export function str(meter: Meter, value: Value, line: number): string {
  return typeof value === 'string' ? value : repr(meter, value, line);
}

export function repr(meter: Meter, value: Value, line: number): string {
  return show(meter, value, line, 0);
}

function show(meter: Meter, value: Value, line: number, depth: number): string {
  if (depth > MAX_VALUE_DEPTH) fail(line, `values nest deeper than ${MAX_VALUE_DEPTH}`);
  const text = showPlain(value) ?? showMany(meter, value, line, depth);
  meter.allocateText(text.length, line);
  return text;
}

function showPlain(value: Value): string | undefined {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'number') return String(value);
  if (typeof value === 'string') return quote(value);
  if (value instanceof StarFloat) return floatText(value.value);
  if (value instanceof StarFunction)
    return value.isBuiltin ? `<built-in ${value.name}>` : `<function ${value.name}>`;
  return undefined;
}

function showMany(meter: Meter, value: Value, line: number, depth: number): string {
  const inner = (item: Value): string => show(meter, item, line, depth + 1);
  if (value instanceof StarList) return `[${spent(meter, value.items, line).map(inner).join(', ')}]`;
  if (value instanceof StarTuple) {
    const items = spent(meter, value.items, line).map(inner);
    return items.length === 1 ? `(${items[0]},)` : `(${items.join(', ')})`;
  }
  if (value instanceof StarDict) {
    meter.spend(value.size, line);
    return `{${Array.from(value.entries(), ([k, v]) => `${inner(k)}: ${inner(v)}`).join(', ')}}`;
  }
  if (value instanceof StarRange) {
    const stop = value.start + value.length * value.step;
    return value.step === 1
      ? `range(${value.start}, ${stop})`
      : `range(${value.start}, ${stop}, ${value.step})`;
  }
  if (value !== null && typeof value === 'object' && 'shape' in value) {
    const fields = value.shape.fields.map((field, i) => {
      const stored = value.values[i];
      const shown = value.shape.isFloat[i] && typeof stored === 'number' ? floatText(stored) : inner(stored);
      return `${field} = ${shown}`;
    });
    return `${value.shape.name}(${fields.join(', ')})`;
  }
  return '';
}

function spent(meter: Meter, items: readonly Value[], line: number): readonly Value[] {
  meter.spend(items.length, line);
  return items;
}

/** The shortest text that reads back as the same float, with a point or an exponent in it. */
function floatText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? '+inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e17)) return exponentText(value.toExponential());
  const text = String(value);
  return text.includes('.') ? text : `${text}.0`;
}

/** Two digits at least in the exponent, as Go and Python write it. */
function exponentText(text: string): string {
  return text.replace(/e([+-])(\d)$/, 'e$10$2');
}

function quote(text: string): string {
  let quoted = '"';
  for (const c of text) {
    const code = c.codePointAt(0) ?? 0;
    if (c === '"' || c === '\\') quoted += `\\${c}`;
    else if (c === '\n') quoted += '\\n';
    else if (c === '\t') quoted += '\\t';
    else if (c === '\r') quoted += '\\r';
    else if (code < 32 || code === 127) quoted += `\\x${code.toString(16).padStart(2, '0')}`;
    else quoted += c;
  }
  return `${quoted}"`;
}

// Elements and fields: `x[i]`, `x[i] = v`, `x[a:b:c]`, `x.name`, `i in x`.

/**
 * Runs what looks up a key, and says so when a list or a dict is used as one. A long text costs as where it
 * is compared; a tuple costs a step an element, and memory for the text that stands for it.
 */
export function withKey<T>(meter: Meter, line: number, key: Value, work: () => T): T {
  try {
    if (typeof key === 'string') spendText(meter, key.length, line);
    else if (key instanceof StarTuple) {
      hashOfTuple(key, (elements, units) => {
        meter.spend(elements, line);
        meter.allocate(units, line);
      });
    }
    return work();
  } catch (error) {
    if (error instanceof UnhashableError) fail(line, `${typeName(key)} cannot be a key. Use a tuple`);
    throw error;
  }
}

export function getItem(meter: Meter, object: Value, index: Value, line: number): Value {
  if (object instanceof StarList || object instanceof StarTuple) {
    return object.items[position(index, object.items.length, object, line)];
  }
  if (object instanceof StarDict) {
    const value = withKey(meter, line, index, () => object.get(index));
    if (value === undefined) {
      return fail(
        line,
        `the key ${repr(meter, index, line).slice(0, 80)} is not in the dict. Use get(key, default)`,
      );
    }
    return value;
  }
  if (typeof object === 'string') return object[position(index, object.length, object, line)];
  if (object instanceof StarRange) return object.at(position(index, object.length, object, line));
  if (object instanceof StarRecord) {
    const field = typeof index === 'string' ? index : object.shape.fields[0];
    return fail(line, `a record of ${object.shape.name} has fields and no elements. Write x.${field}`);
  }
  return fail(line, `${typeName(object)} has no elements`);
}

function notAnIndex(index: Value, line: number): never {
  const remedy = index instanceof StarFloat ? '. Write int(x), or divide by //' : '';
  return fail(line, `an index is an int, not ${typeName(index)}${remedy}`);
}

function position(index: Value, length: number, object: Value, line: number): number {
  if (typeof index !== 'number') return notAnIndex(index, line);
  const at = index < 0 ? index + length : index;
  if (at < 0 || at >= length) {
    fail(line, `the index ${index} is outside the ${typeName(object)} of ${length} elements`);
  }
  return at;
}

/** @throws PolicyError policy_runtime for a value that is frozen or that a loop runs over */
export function requireMutable(object: StarList | StarDict, line: number): void {
  if (object.isFrozen)
    fail(line, `the ${typeName(object)} belongs to the module and is frozen. Copy it first`);
  if (object.loops > 0) fail(line, `the ${typeName(object)} changes while a loop runs over it`);
}

export function setItem(meter: Meter, object: Value, index: Value, value: Value, line: number): void {
  if (object instanceof StarList) {
    requireMutable(object, line);
    object.items[position(index, object.items.length, object, line)] = value;
  } else if (object instanceof StarDict) {
    requireMutable(object, line);
    meter.allocate(2, line);
    withKey(meter, line, index, () => object.set(index, value));
  } else {
    fail(line, `elements of ${typeName(object)} cannot be assigned`);
  }
}

export function getSlice(
  meter: Meter,
  object: Value,
  start: Value,
  stop: Value,
  step: Value,
  line: number,
): Value {
  const items = sliceable(object, line);
  const by = step === null ? 1 : bound(step, line);
  if (by === 0) fail(line, 'the step of a slice is 0');
  const { length } = items;
  const first = start === null ? (by > 0 ? 0 : length - 1) : clamp(bound(start, line), length, by);
  const last = stop === null ? (by > 0 ? length : -1) : clamp(bound(stop, line), length, by);
  const count = Math.max(0, Math.ceil((last - first) / by));
  meter.spend(count, line);
  if (object instanceof StarRange) {
    return new StarRange(object.start + first * object.step, object.step * by, count);
  }
  meter.allocate(1 + count, line);
  if (typeof object === 'string') {
    if (by === 1) return object.slice(first, first + count);
    return Array.from({ length: count }, (_, i) => object[first + i * by]).join('');
  }
  const chosen = Array.from({ length: count }, (_, i) => (items as readonly Value[])[first + i * by]);
  return object instanceof StarList ? new StarList(chosen) : new StarTuple(chosen);
}

function sliceable(object: Value, line: number): { readonly length: number } {
  if (object instanceof StarList || object instanceof StarTuple) return object.items;
  if (typeof object === 'string' || object instanceof StarRange) return object;
  return fail(line, `${typeName(object)} cannot be sliced`);
}

function bound(value: Value, line: number): number {
  return typeof value === 'number'
    ? value
    : fail(line, `a bound of a slice is an int, not ${typeName(value)}`);
}

function clamp(index: number, length: number, step: number): number {
  const at = index < 0 ? index + length : index;
  return step > 0 ? Math.min(Math.max(at, 0), length) : Math.min(Math.max(at, -1), length - 1);
}

/** Where one place of a program found the field it reads; the next record is mostly of the same shape. */
export class FieldSite {
  readonly name: string;
  readonly line: number;
  shape: unknown = null;
  index = -1;
  isFloat = false;

  constructor(name: string, line: number) {
    this.name = name;
    this.line = line;
  }
}

/** A field of a record. `undefined` unless the value is a record. */
export function getField(object: Value, site: FieldSite): Value | undefined {
  if (!(object instanceof StarRecord)) return undefined;
  if (object.shape !== site.shape) findField(object, site);
  const value = object.values[site.index];
  return site.isFloat && typeof value === 'number' ? new StarFloat(value) : value;
}

/** `getField`, with floats as bare numbers. */
export function getBareField(object: Value, site: FieldSite): Value | undefined {
  if (!(object instanceof StarRecord)) return undefined;
  if (object.shape !== site.shape) findField(object, site);
  return object.values[site.index];
}

function fieldRemedy(shape: RecordShape, name: string): string {
  if (name === 'get') return `A record is not a dict: write x.${shape.fields[0]}`;
  const meant = shape.nearest(name);
  return meant === undefined ? `Its fields are ${shape.fields.join(', ')}` : `Do you mean ${meant}?`;
}

function findField({ shape }: StarRecord, site: FieldSite): void {
  const index = shape.indexOf(site.name);
  if (index < 0) {
    fail(site.line, `${shape.name} has no field ${site.name}. ${fieldRemedy(shape, site.name)}`);
  }
  site.shape = shape;
  site.index = index;
  site.isFloat = shape.isFloat[index];
}

export function contains(meter: Meter, element: Value, object: Value, line: number): boolean {
  if (object instanceof StarDict)
    return withKey(meter, line, element, () => object.get(element) !== undefined);
  if (typeof object === 'string') {
    if (typeof element !== 'string')
      fail(line, `"in" looks for a string in a string, not for ${typeName(element)}`);
    spendSearch(meter, object, element, line);
    return object.includes(element);
  }
  if (object instanceof StarList || object instanceof StarTuple) {
    meter.spend(object.items.length, line);
    return object.items.some((item) => isEqual(meter, item, element, line));
  }
  if (object instanceof StarRange) {
    const value = element instanceof StarFloat ? element.value : element;
    if (typeof value !== 'number') return false;
    const index = (value - object.start) / object.step;
    return Number.isInteger(index) && index >= 0 && index < object.length;
  }
  return fail(line, `"in" does not look into ${typeName(object)}`);
}

// Arithmetic: https://github.com/bazelbuild/starlark/blob/master/spec.md#arithmetic. Integers are exact up to
// 2^53 and overflow into an error; floats are IEEE doubles, and only + - * / and comparisons touch them, so
// that every machine computes the same bits.

export function add(meter: Meter, a: Value, b: Value, line: number): Value {
  if (a instanceof StarFloat) {
    if (b instanceof StarFloat) return new StarFloat(a.value + b.value);
    if (typeof b === 'number') return new StarFloat(a.value + b);
  } else if (typeof a === 'number') {
    if (typeof b === 'number') return exact(a + b, line);
    if (b instanceof StarFloat) return new StarFloat(a + b.value);
  }
  return concatenate(meter, a, b, line) ?? mismatch('+', a, b, line);
}

export function subtract(a: Value, b: Value, line: number): Value {
  if (a instanceof StarFloat) {
    if (b instanceof StarFloat) return new StarFloat(a.value - b.value);
    if (typeof b === 'number') return new StarFloat(a.value - b);
  } else if (typeof a === 'number') {
    if (typeof b === 'number') return exact(a - b, line);
    if (b instanceof StarFloat) return new StarFloat(a - b.value);
  }
  return mismatch('-', a, b, line);
}

export function multiply(meter: Meter, a: Value, b: Value, line: number): Value {
  if (a instanceof StarFloat) {
    if (b instanceof StarFloat) return new StarFloat(a.value * b.value);
    if (typeof b === 'number') return new StarFloat(a.value * b);
  } else if (typeof a === 'number') {
    if (typeof b === 'number') return exact(a * b, line);
    if (b instanceof StarFloat) return new StarFloat(a * b.value);
  }
  return repeat(meter, a, b, line) ?? mismatch('*', a, b, line);
}

export function divide(a: Value, b: Value, line: number): Value {
  return new StarFloat(quotient(a, b, line));
}

export function quotient(a: Value, b: Value, line: number): number {
  return divideNumbers(numeric('/', a, b, a, line), numeric('/', a, b, b, line), line);
}

export function divideNumbers(x: number, y: number, line: number): number {
  return y === 0 ? fail(line, 'division by zero') : x / y;
}

/**
 * The three operations where it does not matter whether the result is an int or a float. They return a bare
 * number for numbers, and a value for anything else, such as lists.
 */
export function addBare(meter: Meter, a: Value, b: Value, line: number): Value {
  if (typeof a === 'number' && typeof b === 'number') return exact(a + b, line);
  const [x, y] = [bare(a), bare(b)];
  return x === undefined || y === undefined ? add(meter, a, b, line) : x + y;
}

export function subtractBare(a: Value, b: Value, line: number): Value {
  if (typeof a === 'number' && typeof b === 'number') return exact(a - b, line);
  const [x, y] = [bare(a), bare(b)];
  return x === undefined || y === undefined ? subtract(a, b, line) : x - y;
}

export function multiplyBare(meter: Meter, a: Value, b: Value, line: number): Value {
  if (typeof a === 'number' && typeof b === 'number') return exact(a * b, line);
  const [x, y] = [bare(a), bare(b)];
  return x === undefined || y === undefined ? multiply(meter, a, b, line) : x * y;
}

function bare(value: Value): number | undefined {
  if (typeof value === 'number') return value;
  return value instanceof StarFloat ? value.value : undefined;
}

/** The number of an int or a float that stands left of a number of the kind of `other`. */
export function leftNumber(value: Value, operator: string, other: Value, line: number): number {
  if (typeof value === 'number') return value;
  return value instanceof StarFloat ? value.value : mismatch(operator, value, other, line);
}

/** The number of an int or a float that stands right of a number of the kind of `other`. */
export function rightNumber(value: Value, operator: string, other: Value, line: number): number {
  if (typeof value === 'number') return value;
  return value instanceof StarFloat ? value.value : mismatch(operator, other, value, line);
}

export function floorDivide(a: Value, b: Value, line: number): Value {
  const x = numeric('//', a, b, a, line);
  const y = numeric('//', a, b, b, line);
  if (y === 0) fail(line, 'division by zero');
  if (typeof a === 'number' && typeof b === 'number') return (x - floorModulo(x, y)) / y || 0;
  return new StarFloat(Math.floor(x / y));
}

export function modulo(meter: Meter, a: Value, b: Value, line: number): Value {
  if (typeof a === 'string') return formatPercent(meter, a, b, line);
  const x = numeric('%', a, b, a, line);
  const y = numeric('%', a, b, b, line);
  if (y === 0) fail(line, 'division by zero');
  const result = floorModulo(x, y);
  return typeof a === 'number' && typeof b === 'number' ? result || 0 : new StarFloat(result);
}

/** The remainder with the sign of the divisor; zero has none. */
function floorModulo(x: number, y: number): number {
  const remainder = x % y;
  if (remainder === 0) return 0;
  return remainder < 0 !== y < 0 ? remainder + y : remainder;
}

export function negate(a: Value, line: number): Value {
  if (typeof a === 'number') return -a || 0;
  if (a instanceof StarFloat) return new StarFloat(-a.value);
  return fail(line, `"-" takes a number, not ${typeName(a)}`);
}

export function plus(a: Value, line: number): Value {
  if (typeof a === 'number' || a instanceof StarFloat) return a;
  return fail(line, `"+" takes a number, not ${typeName(a)}`);
}

export function invert(a: Value, line: number): Value {
  if (typeof a === 'number') return -a - 1;
  return fail(line, `"~" takes an int, not ${typeName(a)}`);
}

export function bitwise(meter: Meter, operator: string, a: Value, b: Value, line: number): Value {
  if (operator === '|') {
    const merged = merge(meter, a, b, line);
    if (merged !== undefined) return merged;
  }
  if (typeof a !== 'number' || typeof b !== 'number') return mismatch(operator, a, b, line);
  const x = BigInt(a);
  const y = BigInt(b);
  switch (operator) {
    case '&':
      return exact(Number(x & y), line);
    case '|':
      return exact(Number(x | y), line);
    case '^':
      return exact(Number(x ^ y), line);
    default:
      if (b < 0) fail(line, `${operator} takes a count that is not negative, not ${b}`);
      if (operator === '>>') return Number(x >> (y > 64n ? 64n : y));
      if (b > 53 && a !== 0) fail(line, `${a} << ${b} is over 2^53, beyond which integers are not exact`);
      return a === 0 ? 0 : exact(Number(x << y), line);
  }
}

export function exact(value: number, line: number): number {
  if (!Number.isSafeInteger(value)) {
    fail(line, 'the result is over 2^53, beyond which integers are not exact. Compute with floats: float(x)');
  }
  return value || 0;
}

function numeric(operator: string, a: Value, b: Value, value: Value, line: number): number {
  if (typeof value === 'number') return value;
  if (value instanceof StarFloat) return value.value;
  return mismatch(operator, a, b, line);
}

function mismatch(operator: string, a: Value, b: Value, line: number): never {
  return fail(line, `"${operator}" does not take ${typeName(a)} and ${typeName(b)}${conversion(a, b)}`);
}

function conversion(a: Value, b: Value): string {
  const names = [typeName(a), typeName(b)];
  if (names.includes('NoneType'))
    return '. Give a variable that holds None a number first, or test it with == None';
  if (names.includes('bool')) return '. Write int(x) for a bool';
  const isNumber = names.some((name) => name === 'int' || name === 'float');
  return isNumber && names.includes('string') ? '. Write str(x), or float(x) for a text of digits' : '';
}

// + * | and % of values other than numbers: join, repeat, merge, format.

function concatenate(meter: Meter, a: Value, b: Value, line: number): Value | undefined {
  if (typeof a === 'string' && typeof b === 'string') {
    meter.allocateText(a.length + b.length, line);
    return a + b;
  }
  if (a instanceof StarList && b instanceof StarList)
    return new StarList(joined(meter, a.items, b.items, line));
  if (a instanceof StarTuple && b instanceof StarTuple) {
    return new StarTuple(joined(meter, a.items, b.items, line));
  }
  return undefined;
}

function joined(meter: Meter, a: readonly Value[], b: readonly Value[], line: number): Value[] {
  const length = a.length + b.length;
  meter.spend(length, line);
  meter.allocate(1 + length, line);
  return a.concat(b);
}

/** `value * count` or `count * value`. */
function repeat(meter: Meter, a: Value, b: Value, line: number): Value | undefined {
  const [value, count] = typeof a === 'number' ? [b, a] : [a, b];
  if (typeof count !== 'number') return undefined;
  const times = Math.max(0, count);
  if (typeof value === 'string') {
    meter.allocateText(Math.min(value.length * times, Number.MAX_SAFE_INTEGER), line);
    return value.repeat(times);
  }
  if (!(value instanceof StarList || value instanceof StarTuple)) return undefined;
  const length = value.items.length * times;
  meter.allocate(1 + length, line);
  meter.spend(length, line);
  const items: Value[] = [];
  for (let i = 0; i < times && length > 0; i++) for (const item of value.items) items.push(item);
  return value instanceof StarList ? new StarList(items) : new StarTuple(items);
}

/** `a | b` of two dicts: the keys of both, with the values of `b` where both have one. */
function merge(meter: Meter, a: Value, b: Value, line: number): Value | undefined {
  if (!(a instanceof StarDict && b instanceof StarDict)) return undefined;
  meter.spend(a.size + b.size, line);
  meter.allocate(1 + 2 * (a.size + b.size), line);
  const merged = new StarDict();
  for (const source of [a, b]) for (const [key, value] of source.entries()) merged.set(key, value);
  return merged;
}

/** `format % values`, with %s %r %d %i %o %x %X %c %e %f %g and %%. */
function formatPercent(meter: Meter, format: string, b: Value, line: number): string {
  const values = b instanceof StarTuple ? b.items : [b];
  let next = 0;
  let text = '';
  for (let i = 0; i < format.length; i++) {
    if (format[i] !== '%') {
      text += format[i];
      continue;
    }
    const verb = format[++i];
    if (verb === '%') text += '%';
    else if (verb === undefined) fail(line, 'the format ends after "%". Write %% for a percent sign');
    else {
      if (next >= values.length) fail(line, `the format asks for more than ${values.length} values`);
      text += formatOne(meter, verb, values[next++], line);
    }
  }
  if (next < values.length) fail(line, `the format takes ${next} values, not ${values.length}`);
  meter.spend(format.length, line);
  meter.allocateText(text.length, line);
  return text;
}

function formatOne(meter: Meter, verb: string, value: Value, line: number): string {
  switch (verb) {
    case 's':
      return str(meter, value, line);
    case 'r':
      return repr(meter, value, line);
    case 'd':
    case 'i':
      return String(integer(verb, value, line));
    case 'o':
      return integer(verb, value, line).toString(8);
    case 'x':
      return integer(verb, value, line).toString(16);
    case 'X':
      return integer(verb, value, line).toString(16).toUpperCase();
    case 'c': {
      if (typeof value === 'string' && Array.from(value).length === 1) return value;
      const point = integer(verb, value, line);
      if (point < 0 || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        fail(line, `${point} is not a character`);
      return String.fromCodePoint(point);
    }
    case 'e':
    case 'f':
    case 'g':
      return formatFloat(verb, value, line);
    default:
      return fail(line, `%${verb} is not a format. Use %s %r %d %o %x %X %c %e %f or %g`);
  }
}

function integer(verb: string, value: Value, line: number): number {
  if (typeof value === 'number') return value;
  if (value instanceof StarFloat && Number.isSafeInteger(Math.trunc(value.value)))
    return Math.trunc(value.value) || 0;
  return fail(line, `%${verb} takes an int, not ${typeName(value)}`);
}

function formatFloat(verb: 'e' | 'f' | 'g', value: Value, line: number): string {
  const x = typeof value === 'number' ? value : value instanceof StarFloat ? value.value : undefined;
  if (x === undefined) return fail(line, `%${verb} takes a number, not ${typeName(value)}`);
  if (!Number.isFinite(x) || verb === 'g') return floatText(x);
  if (verb === 'e') return exponentText(x.toExponential(6));
  return Math.abs(x) < 1e21 ? x.toFixed(6) : `${BigInt(x)}.000000`;
}

// Equality and order: https://github.com/bazelbuild/starlark/blob/master/spec.md#comparisons.

/** Characters that are compared in one step; short texts are compared for nothing. */
const CHARACTERS_PER_STEP = 64;

/** Charges a comparison of texts that reads up to `characters` characters. Call it before. */
export function spendText(meter: Meter, characters: number, line: number): void {
  if (characters >= CHARACTERS_PER_STEP) meter.spend(Math.floor(characters / CHARACTERS_PER_STEP), line);
}

/**
 * Called before a text is searched. A search may look at each place of it for as long as the part is, so that
 * a long part counts more than once.
 */
export function spendSearch(meter: Meter, text: string, part: string, line: number): void {
  meter.spend(text.length * (1 + Math.floor(part.length / CHARACTERS_PER_STEP)), line);
}

export function isEqual(meter: Meter, a: Value, b: Value, line: number): boolean {
  if (typeof a === 'string') return typeof b === 'string' && sameText(meter, a, b, line);
  if (a === b) return true;
  if (typeof a !== 'object' && typeof b !== 'object') return false;
  return equals(meter, a, b, line, 0);
}

function equals(meter: Meter, a: Value, b: Value, line: number, depth: number): boolean {
  if (typeof a === 'string') return typeof b === 'string' && sameText(meter, a, b, line);
  if (a === b) return true;
  const x = numberOf(a);
  if (x !== undefined) return x === numberOf(b);
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object') return false;
  if (depth > MAX_VALUE_DEPTH) fail(line, `values nest deeper than ${MAX_VALUE_DEPTH}`);
  if (
    (a instanceof StarList && b instanceof StarList) ||
    (a instanceof StarTuple && b instanceof StarTuple)
  ) {
    if (a.items.length !== b.items.length) return false;
    meter.spend(a.items.length, line);
    return a.items.every((item, i) => equals(meter, item, b.items[i], line, depth + 1));
  }
  if (a instanceof StarDict && b instanceof StarDict) {
    if (a.size !== b.size) return false;
    meter.spend(a.size, line);
    for (const [key, value] of a.entries()) {
      const other = b.get(key);
      if (other === undefined || !equals(meter, value, other, line, depth + 1)) return false;
    }
    return true;
  }
  if (a instanceof StarRange && b instanceof StarRange) {
    if (a.length !== b.length) return false;
    return a.length === 0 || (a.start === b.start && (a.length === 1 || a.step === b.step));
  }
  return false;
}

function sameText(meter: Meter, a: string, b: string, line: number): boolean {
  if (a.length !== b.length) return false;
  spendText(meter, a.length, line);
  return a === b;
}

/** The number of an int or a float. */
function numberOf(value: Value): number | undefined {
  if (typeof value === 'number') return value;
  return value instanceof StarFloat ? value.value : undefined;
}

/**
 * Negative, zero or positive. NaN equals itself and is above all numbers, so that every list has an order.
 */
export function compare(meter: Meter, a: Value, b: Value, line: number): number {
  return order(meter, a, b, line, 0);
}

function order(meter: Meter, a: Value, b: Value, line: number, depth: number): number {
  const x = numberOf(a);
  const y = numberOf(b);
  if (x !== undefined && y !== undefined) return orderOfNumbers(x, y);
  if (typeof a === 'string' && typeof b === 'string') return orderOfTexts(meter, a, b, line);
  if (typeof a === 'boolean' && typeof b === 'boolean') return Number(a) - Number(b);
  if (
    (a instanceof StarList && b instanceof StarList) ||
    (a instanceof StarTuple && b instanceof StarTuple)
  ) {
    if (depth > MAX_VALUE_DEPTH) fail(line, `values nest deeper than ${MAX_VALUE_DEPTH}`);
    const common = Math.min(a.items.length, b.items.length);
    meter.spend(common, line);
    for (let i = 0; i < common; i++) {
      const found = order(meter, a.items[i], b.items[i], line, depth + 1);
      if (found !== 0) return found;
    }
    return a.items.length - b.items.length;
  }
  return fail(line, `${typeName(a)} and ${typeName(b)} have no order`);
}

function orderOfNumbers(x: number, y: number): number {
  if (x < y) return -1;
  if (x > y) return 1;
  if (x === y) return 0;
  return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
}

/** Compares by code points. UTF-16 order differs outside the basic plane. */
function orderOfTexts(meter: Meter, a: string, b: string, line: number): number {
  const common = Math.min(a.length, b.length);
  // one after the other, which takes longer than whether they are equal
  spendText(meter, 8 * common, line);
  if (a === b) return 0;
  let i = 0;
  while (i < common && a.charCodeAt(i) === b.charCodeAt(i)) i++;
  if (i === common) return a.length - b.length;
  const x = a.charCodeAt(i);
  const y = b.charCodeAt(i);
  const isHigh = (unit: number): boolean => unit >= 0xd800 && unit < 0xe000;
  return isHigh(x) === isHigh(y) ? x - y : isHigh(x) ? 1 : -1;
}

// Running over the elements of a value, and taking a value apart.

/** Elements to loop over. A list that a loop runs over cannot change, so its items need no copy. */
export function elementsOf(meter: Meter, value: Value, line: number): readonly Value[] {
  if (value instanceof StarList || value instanceof StarTuple) return value.items;
  if (value instanceof StarDict) {
    meter.allocate(1 + value.size, line);
    return value.keys();
  }
  if (value instanceof StarRange) {
    meter.allocate(1 + value.length, line);
    return Array.from({ length: value.length }, (_, i) => value.at(i));
  }
  const remedy = typeof value === 'string' ? '. Use s.elems()' : '';
  return fail(line, `a loop cannot run over ${typeName(value)}${remedy}`);
}

/** Marks a value as looped over, until `endLoop`. */
export function beginLoop(value: Value): void {
  if (value instanceof StarList || value instanceof StarDict) value.loops++;
}

export function endLoop(value: Value): void {
  if (value instanceof StarList || value instanceof StarDict) value.loops--;
}

/** The `count` elements of a value that is assigned to `count` targets. */
export function unpack(meter: Meter, value: Value, count: number, line: number): readonly Value[] {
  const items = elementsOf(meter, value, line);
  if (items.length !== count) {
    fail(line, `${items.length} values are assigned to ${count} targets`);
  }
  return items;
}
