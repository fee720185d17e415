/**
 * Arithmetic: https://github.com/bazelbuild/starlark/blob/master/spec.md#arithmetic. Integers are exact up to
 * 2^53 and overflow into an error; floats are IEEE doubles, and only + - * / and comparisons touch them, so
 * that every machine computes the same bits.
 */

import type { Meter } from '../../../meter.ts';
import { fail } from '../../failure.ts';
import { typeName } from '../typeName.ts';
import { StarFloat, type Value } from '../value.ts';
import { concatenate, formatPercent, merge, repeat } from './combining.ts';

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
 * The three operations where it does not matter whether the result is an int or a float: a bare number, or a
 * value that is none.
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
  if (names.includes('NoneType')) return '. Give what is None a number first, or test it with == None';
  if (names.includes('bool')) return '. Write int(x) for a bool';
  const isNumber = names.some((name) => name === 'int' || name === 'float');
  return isNumber && names.includes('string') ? '. Write str(x), or float(x) for a text of digits' : '';
}
