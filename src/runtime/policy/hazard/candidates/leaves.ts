/**
 * Entered replicas by cell, a cell being a class at an age. Each group (tier and size class) has its own
 * cells. A list of a cell runs from the replica used longest ago to the latest, leaves that an eviction made
 * aside. Replicas that are no leaves lie in one more list of their group, which is asked last.
 */

import { invariant } from '../../../errors.ts';
import type { StateVisitor } from '../../../snapshot/index.ts';
import type { PolicyWorld } from '../../evictionPolicy.ts';
import { BUCKETS, bucketOf, bucketStartUs } from '../learning/ages.ts';
import { CLASSES } from '../learning/classes.ts';
import { FilledCells } from './filledCells.ts';

const CELLS = CLASSES * BUCKETS;
/** List of those that are no leaves. */
const INNER = CELLS;
const LISTS = CELLS + 1;
/** Most replicas that are passed to find a place in a list. */
const STEPS = 32;

export class Leaves {
  /** Whether the lists are kept in order of use: for who asks for the oldest. */
  keepsOrder = false;
  readonly #worth: Float64Array;
  readonly #first: Int32Array;
  readonly #last: Int32Array;
  readonly #next: Int32Array;
  readonly #prev: Int32Array;
  /** List of each entered replica, within its group; -1 for others. */
  readonly #cell: Int32Array;
  readonly #usedUs: Float64Array;
  /** By group. */
  readonly #filled: readonly FilledCells[];
  /** By group: the cell of the oldest replica, -1 where it is to be looked for. */
  readonly #oldest: Int32Array;
  /** When the first replica of the oldest cell was used. */
  readonly #oldestUs: Float64Array;

  /** @param worth by cell */
  constructor({ tiers, base, unitBytes }: PolicyWorld, worth: Float64Array) {
    const groups = tiers * unitBytes.length;
    this.#worth = worth;
    this.#first = new Int32Array(groups * LISTS).fill(-1);
    this.#last = new Int32Array(groups * LISTS).fill(-1);
    this.#next = new Int32Array(base[tiers]).fill(-1);
    this.#prev = new Int32Array(base[tiers]).fill(-1);
    this.#cell = new Int32Array(base[tiers]).fill(-1);
    this.#usedUs = new Float64Array(base[tiers]);
    this.#filled = Array.from({ length: groups }, () => new FilledCells(worth));
    this.#oldest = new Int32Array(groups).fill(-1);
    this.#oldestUs = new Float64Array(groups);
  }

  isLeaf(replica: number): boolean {
    return this.#cell[replica] !== INNER;
  }

  addInner(group: number, replica: number): void {
    this.#link(group * LISTS + INNER, replica, this.#last[group * LISTS + INNER]);
    this.#cell[replica] = INNER;
  }

  /** @param usedUs when it was used last */
  addLeaf(group: number, replica: number, c: number, usedUs: number, nowUs: number, revealed: boolean): void {
    this.#usedUs[replica] = usedUs;
    this.#add(group, replica, c * BUCKETS + bucketOf(nowUs - usedUs), revealed);
  }

  #add(group: number, replica: number, cell: number, revealed: boolean): void {
    const list = group * LISTS + cell;
    this.#cell[replica] = cell;
    if (this.#first[list] !== -1) {
      this.#linkInOrder(list, replica, revealed);
      if (this.#first[list] === replica) this.#frontChanged(group, cell);
      return;
    }
    this.#link(list, replica, -1);
    this.#frontChanged(group, cell);
    this.#filled[group].add(cell);
  }

  remove(group: number, replica: number): void {
    const cell = this.#cell[replica];
    invariant(cell !== -1, 'only an entered replica can leave');
    const list = group * LISTS + cell;
    const first = this.#first[list] === replica;
    this.#unlink(list, replica);
    this.#cell[replica] = -1;
    if (cell === INNER) return;
    const after = this.#first[list];
    if (first) this.#frontChanged(group, cell);
    if (after === -1) this.#filled[group].remove(cell);
  }

  /**
   * Keeps the oldest cell right, or leaves it to be looked for. Of cells that are equal, the lower number is
   * the oldest.
   */
  #frontChanged(group: number, cell: number): void {
    const oldest = this.#oldest[group];
    if (oldest === -1) return;
    const front = this.#first[group * LISTS + cell];
    const us = front === -1 ? Number.POSITIVE_INFINITY : this.#usedUs[front];
    const bound = this.#oldestUs[group];
    if (us < bound || (us === bound && cell <= oldest)) {
      this.#oldest[group] = cell;
      this.#oldestUs[group] = us;
    } else if (cell === oldest) this.#oldest[group] = -1;
  }

  /** Moves replicas whose age has passed into a further bucket. */
  age(nowUs: number): void {
    for (let group = 0; group < this.#filled.length; group++) {
      for (const cell of this.#filled[group].all.slice()) {
        const bucket = cell % BUCKETS;
        if (bucket === BUCKETS - 1) continue;
        const list = group * LISTS + cell;
        const bound = nowUs - bucketStartUs[bucket + 1];
        for (let at = this.#first[list]; at !== -1 && this.#usedUs[at] <= bound; at = this.#first[list]) {
          this.remove(group, at);
          this.#add(group, at, cell - bucket + bucketOf(nowUs - this.#usedUs[at]), false);
        }
      }
    }
  }

  /** The worth of classes has changed. */
  rerank(): void {
    for (const filled of this.#filled) filled.rerank();
  }

  /** The leaf of least worth in a group, or -1. */
  least(group: number): number {
    const cell = this.#filled[group].top;
    return cell === -1 ? -1 : this.#first[group * LISTS + cell];
  }

  /** The leaf of a group that was used longest ago, or -1. */
  oldest(group: number): number {
    let best = this.#oldest[group];
    if (best === -1) {
      let bestUs = Number.POSITIVE_INFINITY;
      for (const cell of this.#filled[group].all) {
        const us = this.#usedUs[this.#first[group * LISTS + cell]];
        if (us < bestUs || (us === bestUs && cell < best)) {
          best = cell;
          bestUs = us;
        }
      }
      if (best === -1) return -1;
      this.#oldest[group] = best;
      this.#oldestUs[group] = bestUs;
    }
    return this.#first[group * LISTS + best];
  }

  /** Of those that are no leaves, the one that was entered longest ago, or -1. */
  inner(group: number): number {
    return this.#first[group * LISTS + INNER];
  }

  usedUs(replica: number): number {
    return this.#usedUs[replica];
  }

  /** Worth of a leaf. */
  worthOf(replica: number): number {
    return this.#worth[this.#cell[replica]];
  }

  /** Leaves of a group from the least worth on, at most so many. */
  leastFew(group: number, count: number): number[] {
    const few: number[] = [];
    for (const cell of this.#filled[group].inOrder()) {
      let at = this.#first[group * LISTS + cell];
      for (; at !== -1 && few.length < count; at = this.#next[at]) few.push(at);
      if (few.length === count) break;
    }
    return few;
  }

  /** The members of a group: leaves from the least worth on, then the others. */
  members(group: number): number[] {
    const all: number[] = [];
    for (const cell of [...this.#filled[group].inOrder(), INNER]) {
      for (let at = this.#first[group * LISTS + cell]; at !== -1; at = this.#next[at]) all.push(at);
    }
    return all;
  }

  /**
   * At the back if it was used latest. Any other is a leaf that an eviction made: it goes to the front, so
   * that the rest of a chain goes before other chains, or where order is kept, to its place near the front.
   */
  #linkInOrder(list: number, replica: number, revealed: boolean): void {
    const usedUs = this.#usedUs[replica];
    const last = this.#last[list];
    if (usedUs > this.#usedUs[last] || (!revealed && usedUs === this.#usedUs[last])) {
      this.#link(list, replica, last);
      return;
    }
    let before = -1;
    let after = this.#first[list];
    for (let steps = 0; this.keepsOrder && steps < STEPS && this.#usedUs[after] < usedUs; steps++) {
      before = after;
      after = this.#next[after];
    }
    this.#link(list, replica, before);
  }

  /** @param before the replica that it follows, -1 at the front */
  #link(list: number, replica: number, before: number): void {
    const after = before === -1 ? this.#first[list] : this.#next[before];
    this.#prev[replica] = before;
    this.#next[replica] = after;
    if (before === -1) this.#first[list] = replica;
    else this.#next[before] = replica;
    if (after === -1) this.#last[list] = replica;
    else this.#prev[after] = replica;
  }

  #unlink(list: number, replica: number): void {
    const next = this.#next[replica];
    const prev = this.#prev[replica];
    if (prev === -1) this.#first[list] = next;
    else this.#next[prev] = next;
    if (next === -1) this.#last[list] = prev;
    else this.#prev[next] = prev;
    this.#next[replica] = -1;
    this.#prev[replica] = -1;
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    visitor.array(this.#first);
    visitor.array(this.#last);
    visitor.array(this.#next);
    visitor.array(this.#prev);
    visitor.array(this.#cell);
    visitor.array(this.#usedUs);
    for (const cells of this.#filled) cells.visitState(visitor);
    visitor.array(this.#oldest);
    visitor.array(this.#oldestUs);
  }

  checkIntegrity(): void {
    let listed = 0;
    for (let group = 0; group < this.#filled.length; group++) {
      const cells = Array.from(this.#filled[group].all);
      this.#filled[group].checkIntegrity();
      for (const cell of cells) {
        invariant(this.#first[group * LISTS + cell] !== -1, 'a filled cell is not empty');
      }
      for (const cell of [...cells, INNER]) {
        let before = -1;
        for (let at = this.#first[group * LISTS + cell]; at !== -1; at = this.#next[at]) {
          invariant(
            this.#cell[at] === cell && this.#prev[at] === before,
            'replicas are linked in their cell',
          );
          invariant(++listed <= this.#cell.length, 'a list of a cell has no cycle');
          before = at;
        }
        invariant(this.#last[group * LISTS + cell] === before, 'a cell knows its last replica');
      }
    }
    const entered = this.#cell.reduce((sum, cell) => sum + (cell === -1 ? 0 : 1), 0);
    invariant(listed === entered, 'every entered replica is in one list');
  }
}
