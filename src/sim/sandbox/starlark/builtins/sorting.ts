/** `sorted`, `min` and `max`, each with a key. */

import type { Meter } from '../../meter.ts';
import { fail } from '../failure.ts';
import {
  compare,
  elementsOf,
  isTrue,
  type NamedArguments,
  StarFunction,
  typeName,
  type Value,
} from '../values/index.ts';
import { take } from './parameters.ts';

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
export function sorted(
  meter: Meter,
  positional: readonly Value[],
  named: NamedArguments,
  line: number,
): Value[] {
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
export function extreme(
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
