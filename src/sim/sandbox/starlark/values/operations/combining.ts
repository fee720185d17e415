/** What + * | and % make of values that are no numbers: joined, repeated, merged and formatted ones. */

import type { Meter } from '../../../meter.ts';
import { fail } from '../../failure.ts';
import { exponentText, floatText, repr, str } from '../text.ts';
import { typeName } from '../typeName.ts';
import { StarDict, StarFloat, StarList, StarTuple, type Value } from '../value.ts';

export function concatenate(meter: Meter, a: Value, b: Value, line: number): Value | undefined {
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
export function repeat(meter: Meter, a: Value, b: Value, line: number): Value | undefined {
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
export function merge(meter: Meter, a: Value, b: Value, line: number): Value | undefined {
  if (!(a instanceof StarDict && b instanceof StarDict)) return undefined;
  meter.spend(a.size + b.size, line);
  meter.allocate(1 + 2 * (a.size + b.size), line);
  const merged = new StarDict();
  for (const source of [a, b]) for (const [key, value] of source.entries()) merged.set(key, value);
  return merged;
}

/** `format % values`, with %s %r %d %i %o %x %X %c %e %f %g and %%. */
export function formatPercent(meter: Meter, format: string, b: Value, line: number): string {
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
        fail(line, `${point} is no character`);
      return String.fromCodePoint(point);
    }
    case 'e':
    case 'f':
    case 'g':
      return formatFloat(verb, value, line);
    default:
      return fail(line, `%${verb} is no format. Use %s %r %d %o %x %X %c %e %f or %g`);
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
