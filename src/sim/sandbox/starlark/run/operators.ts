/** One function for each operator, as both engines use them. */

import type { Meter } from '../../meter.ts';
import type { BinaryOperator } from '../syntax/index.ts';
import {
  add,
  bitwise,
  compare,
  contains,
  divide,
  elementsOf,
  floorDivide,
  isEqual,
  modulo,
  multiply,
  requireMutable,
  StarFloat,
  StarList,
  subtract,
  type Value,
} from '../values/index.ts';

/** NaN is above all numbers. */
export function isLess(meter: Meter, a: Value, b: Value, line: number): boolean {
  if (typeof a === 'number' && typeof b === 'number') return a < b;
  if (a instanceof StarFloat && b instanceof StarFloat) {
    const y = b.value;
    return a.value < y || (Number.isNaN(y) && !Number.isNaN(a.value));
  }
  return compare(meter, a, b, line) < 0;
}

/**
 * `isLess` of operands that can be bare numbers: `a` is a float where `kindOfA` says so, and a number or any
 * other value where it does not.
 */
export function isLessBare(
  meter: Meter,
  a: Value,
  kindOfA: BareKind,
  b: Value,
  kindOfB: BareKind,
  line: number,
): boolean {
  const x = a instanceof StarFloat ? a.value : a;
  const y = b instanceof StarFloat ? b.value : b;
  if (typeof x === 'number' && typeof y === 'number') return x < y || (Number.isNaN(y) && !Number.isNaN(x));
  return compare(meter, boxed(a, kindOfA), boxed(b, kindOfB), line) < 0;
}

/** Where the operand was found: a field, or null for a value that says itself what it is. */
export type BareKind = { readonly isFloat: boolean } | null;

function boxed(value: Value, kind: BareKind): Value {
  return typeof value === 'number' && kind?.isFloat === true ? new StarFloat(value) : value;
}

export function operate(meter: Meter, operator: BinaryOperator, a: Value, b: Value, line: number): Value {
  switch (operator) {
    case '+':
      return add(meter, a, b, line);
    case '-':
      return subtract(a, b, line);
    case '*':
      return multiply(meter, a, b, line);
    case '/':
      return divide(a, b, line);
    case '//':
      return floorDivide(a, b, line);
    case '%':
      return modulo(meter, a, b, line);
    case '==':
      return isEqual(meter, a, b, line);
    case '!=':
      return !isEqual(meter, a, b, line);
    case '<':
      return isLess(meter, a, b, line);
    case '<=':
      return !isLess(meter, b, a, line);
    case '>':
      return isLess(meter, b, a, line);
    case '>=':
      return !isLess(meter, a, b, line);
    case 'in':
      return contains(meter, a, b, line);
    case 'not in':
      return !contains(meter, a, b, line);
    default:
      return bitwise(meter, operator, a, b, line);
  }
}

/** `a op= b`. A list grows in place, so that all who hold it see it. */
export function augment(meter: Meter, operator: BinaryOperator, a: Value, b: Value, line: number): Value {
  if (operator !== '+' || !(a instanceof StarList)) return operate(meter, operator, a, b, line);
  requireMutable(a, line);
  const items = [...elementsOf(meter, b, line)];
  meter.spend(items.length, line);
  meter.allocate(items.length, line);
  for (const item of items) a.items.push(item);
  return a;
}
