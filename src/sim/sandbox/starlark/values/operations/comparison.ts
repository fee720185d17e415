/** Equality and order: https://github.com/bazelbuild/starlark/blob/master/spec.md#comparisons. */

import type { Meter } from '../../../meter.ts';
import { fail } from '../../failure.ts';
import { typeName } from '../typeName.ts';
import {
  MAX_VALUE_DEPTH,
  StarDict,
  StarFloat,
  StarList,
  StarRange,
  StarTuple,
  type Value,
} from '../value.ts';

/** Characters that are compared in one step; short texts are compared for nothing. */
const CHARACTERS_PER_STEP = 64;

/** Called before texts of which so many characters may be compared. */
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

/** By code points, which is not the order of UTF-16 where a text leaves the basic plane. */
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
