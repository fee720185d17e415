/** Running over the elements of a value, and taking a value apart. */

import type { Meter } from '../../../meter.ts';
import { fail } from '../../failure.ts';
import { typeName } from '../typeName.ts';
import { StarDict, StarList, StarRange, StarTuple, type Value } from '../value.ts';

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
