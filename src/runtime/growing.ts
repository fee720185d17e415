/**
 * Tables that grow as they are used. A simulated instance uses a few rows of its manager, and there may be a thousand
 * such managers, so a table begins small and doubles. Rows are handed out from the lowest number up, returned rows
 * first; growth changes no decision.
 */

import { kindOf, type TypedArray } from './snapshot.ts';

const FIRST_ROWS = 256;

/** Rows that a table of at most `capacity` begins with. `whole`: all of them, so that no call waits for growth. */
export function firstRows(capacity: number, whole: boolean): number {
  return whole ? capacity : Math.min(capacity, FIRST_ROWS);
}

/** Rows that a table of at most `capacity` has next, when it needs `row` and has `rows`. */
export function rowsFor(row: number, rows: number, capacity: number): number {
  return Math.min(capacity, Math.max(row + 1, rows * 2, FIRST_ROWS));
}

/** A longer copy whose new elements are `rest`. */
export function grown<T extends TypedArray>(array: T, length: number, rest = 0): T {
  // an array of the same kind
  const longer = new (kindOf(array))(length) as T;
  longer.set(array);
  if (rest !== 0) longer.fill(rest, array.length);
  return longer;
}
