/**
 * How often each whole number occurred: the gaps between tokens, of which there are many and few different
 * ones. Sums, means and percentiles are those of the list that it stands for, to the last bit.
 */

import { invariant } from '../../runtime/errors.ts';
import { grown } from '../../runtime/growing.ts';
import type { StateVisitor } from '../../runtime/snapshot/index.ts';

/** Values below this have a place in a page of an array; larger ones are few and go into a map. */
const DENSE = 1 << 16;
const PAGE_BITS = 6;
const PAGE = 1 << PAGE_BITS;

export class ValueCounts {
  /** By page of values: its place in `counts`, 0 for none. There may be a thousand of these objects. */
  readonly #places: Uint16Array = new Uint16Array(DENSE >> PAGE_BITS);
  #counts: Float64Array = new Float64Array(8 * PAGE);
  #pages = 0;
  readonly #sparse = new Map<number, number>();
  /** Values counted. */
  count = 0;
  sum = 0;

  /** Counts `value` as often as `times` says; a negative number takes it out again. */
  add(value: number, times: number): void {
    this.count += times;
    this.sum += value * times;
    if (value >= 0 && value < DENSE) {
      const place = this.#placeOf(value); // which may replace the array
      this.#counts[place] += times;
    } else this.#sparse.set(value, (this.#sparse.get(value) ?? 0) + times);
  }

  /** Values are whole numbers. */
  #placeOf(value: number): number {
    const page = value >> PAGE_BITS;
    if (this.#places[page] === 0) {
      this.#places[page] = ++this.#pages;
      if ((this.#pages + 1) * PAGE > this.#counts.length) {
        this.#counts = grown(this.#counts, 2 * this.#counts.length);
      }
    }
    return this.#places[page] * PAGE + (value & (PAGE - 1));
  }

  addAll(other: ValueCounts): void {
    for (const [value, times] of other.entries()) this.add(value, times);
  }

  /** Values with their counts, from the smallest up. */
  *entries(): Generator<readonly [value: number, times: number]> {
    for (let page = 0; page < this.#places.length; page++) {
      const place = this.#places[page] * PAGE;
      if (place === 0) continue;
      for (let i = 0; i < PAGE; i++) {
        const times = this.#counts[place + i];
        if (times !== 0) yield [page * PAGE + i, times];
      }
    }
    const large = [...this.#sparse].filter(([, times]) => times !== 0).sort(([a], [b]) => a - b);
    yield* large;
  }

  /** Values at several ranks of the sorted list, in rising order of rank. */
  at(ranks: readonly number[]): number[] {
    const found: number[] = [];
    let seen = 0;
    let next = 0;
    for (const [value, times] of this.entries()) {
      invariant(times > 0, 'a value is taken out as often as it was counted');
      seen += times;
      while (next < ranks.length && ranks[next] < seen) {
        found.push(value);
        next++;
      }
      if (next === ranks.length) break;
    }
    return found;
  }

  /** Into counts of nothing. */
  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => Float64Array.from([...this.entries()].flat()),
      (saved) => {
        for (let i = 0; i < saved.length; i += 2) this.add(saved[i], saved[i + 1]);
      },
    );
  }
}
