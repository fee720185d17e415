/**
 * The cells of one group that are not empty, as a binary heap with the cell of least worth on top; of equal
 * ones, the lower number is above. A cell knows where it stands in the heap, so adding and removing take
 * O(log n).
 */

import { invariant } from '../../../errors.ts';
import type { StateVisitor } from '../../../snapshot/index.ts';

export class FilledCells {
  readonly #worth: Float64Array;
  #heap: Int32Array = new Int32Array(32);
  readonly #at: Int32Array;
  #count = 0;

  /** @param worth by cell; call `rerank` when it has changed */
  constructor(worth: Float64Array) {
    this.#worth = worth;
    this.#at = new Int32Array(worth.length);
  }

  /** The cell of least worth, or -1. */
  get top(): number {
    return this.#count === 0 ? -1 : this.#heap[0];
  }

  /** All of them, in no order that matters; valid until the next change. */
  get all(): Int32Array {
    return this.#heap.subarray(0, this.#count);
  }

  /** From the least worth on. */
  inOrder(): number[] {
    return Array.from(this.all).sort((a, b) => (this.#before(a, b) ? -1 : 1));
  }

  add(cell: number): void {
    const size = this.#count++;
    if (size === this.#heap.length) {
      const grown = new Int32Array(size * 2);
      grown.set(this.#heap);
      this.#heap = grown;
    }
    this.#rise(size, cell);
  }

  remove(cell: number): void {
    const at = this.#at[cell];
    const moved = this.#heap[--this.#count];
    if (moved === cell) return;
    if (this.#before(moved, cell)) this.#rise(at, moved);
    else this.#sink(at, moved);
  }

  rerank(): void {
    for (let at = (this.#count >> 1) - 1; at >= 0; at--) this.#sink(at, this.#heap[at]);
  }

  #before(a: number, b: number): boolean {
    return this.#worth[a] < this.#worth[b] || (this.#worth[a] === this.#worth[b] && a < b);
  }

  #rise(from: number, cell: number): void {
    const heap = this.#heap;
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#before(cell, heap[parent])) break;
      heap[at] = heap[parent];
      this.#at[heap[at]] = at;
      at = parent;
    }
    heap[at] = cell;
    this.#at[cell] = at;
  }

  #sink(from: number, cell: number): void {
    const heap = this.#heap;
    let at = from;
    for (let child = 2 * at + 1; child < this.#count; child = 2 * at + 1) {
      if (child + 1 < this.#count && this.#before(heap[child + 1], heap[child])) child++;
      if (!this.#before(heap[child], cell)) break;
      heap[at] = heap[child];
      this.#at[heap[at]] = at;
      at = child;
    }
    heap[at] = cell;
    this.#at[cell] = at;
  }

  visitState(visitor: StateVisitor): void {
    this.#heap = visitor.growing(this.#heap);
    visitor.array(this.#at);
    this.#count = visitor.number(this.#count);
  }

  checkIntegrity(): void {
    for (const [i, cell] of this.all.entries()) {
      invariant(this.#at[cell] === i, 'a cell knows where it stands');
      invariant(i === 0 || !this.#before(cell, this.#heap[(i - 1) >> 1]), 'the least worth is on top');
    }
  }
}
