/**
 * Entered replicas in order of a rank, by tier and size class: the lowest rank first, and of equal ranks the
 * one that entered first. Each (tier, size class) is a binary heap over replica numbers, and a replica knows
 * its place in its heap, so that entering, leaving and changing a rank take O(log n) and make no garbage.
 */

import { invariant } from '../../errors.ts';
import { firstRows, grown, rowsFor } from '../../growing.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import type { PolicyWorld } from '../evictionPolicy.ts';

export class RankedReplicas {
  readonly #classes: number;
  readonly #heaps: Int32Array[];
  readonly #sizes: Int32Array;
  readonly #replicas: number;
  #rank: Float64Array;
  #order: Float64Array;
  /** Place in its heap, -1 for a replica that has not entered. */
  #at: Int32Array;
  #entered = 0;

  constructor({ tiers, base, unitBytes, whole }: PolicyWorld) {
    this.#replicas = base[tiers];
    const total = firstRows(this.#replicas, whole);
    this.#classes = unitBytes.length;
    this.#heaps = Array.from({ length: tiers * unitBytes.length }, () => new Int32Array(16));
    this.#sizes = new Int32Array(this.#heaps.length);
    this.#rank = new Float64Array(total);
    this.#order = new Float64Array(total);
    this.#at = new Int32Array(total).fill(-1);
  }

  enter(replica: number, tier: number, sizeClass: number, rank: number): void {
    if (replica >= this.#at.length) this.#grow(replica);
    invariant(this.#at[replica] === -1, 'a replica enters once');
    const h = tier * this.#classes + sizeClass;
    const size = this.#sizes[h]++;
    let heap = this.#heaps[h];
    if (size === heap.length) {
      this.#heaps[h] = heap = grown(heap, size * 2);
    }
    this.#rank[replica] = rank;
    this.#order[replica] = this.#entered++;
    this.#rise(heap, size, replica);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    const h = tier * this.#classes + sizeClass;
    const heap = this.#heaps[h];
    const at = this.#at[replica];
    invariant(at !== -1 && heap[at] === replica, 'only an entered replica can leave');
    const last = heap[--this.#sizes[h]];
    this.#at[replica] = -1;
    if (last === replica) return;
    if (this.#before(last, replica)) this.#rise(heap, at, last);
    else this.#sink(heap, this.#sizes[h], at, last);
  }

  has(replica: number): boolean {
    return replica < this.#at.length && this.#at[replica] !== -1;
  }

  #grow(replica: number): void {
    const rows = rowsFor(replica, this.#at.length, this.#replicas);
    this.#rank = grown(this.#rank, rows);
    this.#order = grown(this.#order, rows);
    this.#at = grown(this.#at, rows, -1);
  }

  /** The lowest of a tier, or -1. */
  first(tier: number): number {
    let best = -1;
    for (let c = 0; c < this.#classes; c++) {
      const candidate = this.firstOfClass(tier, c);
      if (candidate !== -1 && (best === -1 || this.#before(candidate, best))) best = candidate;
    }
    return best;
  }

  firstOfClass(tier: number, sizeClass: number): number {
    const h = tier * this.#classes + sizeClass;
    return this.#sizes[h] === 0 ? -1 : this.#heaps[h][0];
  }

  /** Replicas that have entered a tier. */
  sizeOf(tier: number): number {
    let size = 0;
    for (let c = 0; c < this.#classes; c++) size += this.#sizes[tier * this.#classes + c];
    return size;
  }

  /** Replicas that have entered any tier. */
  get size(): number {
    let size = 0;
    for (let h = 0; h < this.#sizes.length; h++) size += this.#sizes[h];
    return size;
  }

  /** Class by class, each in order. */
  dump(tier: number): number[] {
    return this.dumpByClass(tier).flat();
  }

  dumpByClass(tier: number): number[][] {
    return Array.from({ length: this.#classes }, (_, c) => {
      const h = tier * this.#classes + c;
      const members = Array.from(this.#heaps[h].subarray(0, this.#sizes[h]));
      return members.sort((a, b) => (this.#before(a, b) ? -1 : 1));
    });
  }

  visitState(visitor: StateVisitor): void {
    for (let h = 0; h < this.#heaps.length; h++) this.#heaps[h] = visitor.growing(this.#heaps[h]);
    visitor.array(this.#sizes);
    this.#rank = visitor.growing(this.#rank);
    this.#order = visitor.growing(this.#order);
    this.#at = visitor.growing(this.#at);
    this.#entered = visitor.number(this.#entered);
  }

  checkIntegrity(): void {
    let members = 0;
    for (const [h, heap] of this.#heaps.entries()) {
      for (let at = 0; at < this.#sizes[h]; at++) {
        invariant(this.#at[heap[at]] === at, 'a replica knows its place in its heap');
        invariant(
          at === 0 || !this.#before(heap[at], heap[(at - 1) >> 1]),
          'a heap has the lowest rank on top',
        );
      }
      members += this.#sizes[h];
    }
    const placed = this.#at.reduce((sum, at) => sum + (at === -1 ? 0 : 1), 0);
    invariant(members === placed, 'every entered replica is in one heap');
  }

  #before(a: number, b: number): boolean {
    return (
      this.#rank[a] < this.#rank[b] || (this.#rank[a] === this.#rank[b] && this.#order[a] < this.#order[b])
    );
  }

  #rise(heap: Int32Array, from: number, replica: number): void {
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#before(replica, heap[parent])) break;
      heap[at] = heap[parent];
      this.#at[heap[at]] = at;
      at = parent;
    }
    heap[at] = replica;
    this.#at[replica] = at;
  }

  #sink(heap: Int32Array, size: number, from: number, replica: number): void {
    let at = from;
    for (let child = 2 * at + 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && this.#before(heap[child + 1], heap[child])) child++;
      if (!this.#before(heap[child], replica)) break;
      heap[at] = heap[child];
      this.#at[heap[at]] = at;
      at = child;
    }
    heap[at] = replica;
    this.#at[replica] = at;
  }
}
