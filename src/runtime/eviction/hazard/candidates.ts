/**
 * The replicas that may be evicted, and which goes first: the leaf whose expected returns are worth least or, as LRU,
 * the leaf used longest ago. A replica is a leaf while no cached block of its tier follows it; other replicas go only
 * if no leaf is left.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot.ts';
import type { EvictionWorld } from '../evictionPolicy.ts';
import { ChildCounts } from '../rankedPolicy.ts';
import type { HazardBlocks } from './blocks.ts';
import { BUCKETS, bucketOf, bucketStartUs, CLASSES, type Estimates } from './learning.ts';

export class Candidates {
  readonly #world: EvictionWorld;
  readonly #sizeClasses: number;
  readonly #estimates: Estimates;
  readonly #blocks: HazardBlocks;
  readonly childCounts: ChildCounts;
  readonly leaves: Leaves;
  /** Group of each replica: its tier times the number of size classes, plus its size class. */
  readonly #group: Uint16Array;

  constructor(world: EvictionWorld, estimates: Estimates, blocks: HazardBlocks) {
    this.#world = world;
    this.#sizeClasses = world.unitBytes.length;
    this.#estimates = estimates;
    this.#blocks = blocks;
    this.childCounts = new ChildCounts(world);
    this.leaves = new Leaves(world, estimates.worth);
    this.#group = new Uint16Array(world.base[world.tiers]);
  }

  /** Whether the next victim is the leaf used longest ago, whatever the leaves are worth. */
  get asLru(): boolean {
    return this.leaves.keepsOrder;
  }

  set asLru(asLru: boolean) {
    this.leaves.keepsOrder = asLru;
  }

  /** Whether a replica of the content has entered. */
  has(content: number): boolean {
    return this.childCounts.firstOf(content) !== -1;
  }

  enter(replica: number, tier: number, sizeClass: number, content: number, nowUs: number): void {
    const children = this.childCounts;
    const parent = children.enter(replica, tier, content, this.#world.parentOf(content));
    const group = tier * this.#sizeClasses + sizeClass;
    this.#group[replica] = group;
    if (children.hasChildren(content, tier)) this.leaves.addInner(group, replica);
    else this.#addLeaf(replica, group, content, nowUs, false);
    if (parent !== -1) this.#becomeInner(parent, tier);
  }

  /** @returns its content */
  leave(replica: number, tier: number, sizeClass: number, nowUs: number): number {
    this.leaves.remove(tier * this.#sizeClasses + sizeClass, replica);
    const content = this.childCounts.contentOf(replica);
    const parent = this.childCounts.leave(replica, tier);
    if (parent !== -1) this.#becomeLeaf(parent, tier, nowUs);
    return content;
  }

  /** The content's class or last use has changed: its leaves move. */
  replace(content: number, nowUs: number): void {
    for (let at = this.childCounts.firstOf(content); at !== -1; at = this.childCounts.nextOf(at)) {
      if (!this.leaves.isLeaf(at)) continue;
      const group = this.#group[at];
      this.leaves.remove(group, at);
      this.#addLeaf(at, group, content, nowUs, false);
    }
  }

  /** The replica of the tier to be evicted next, or -1. */
  next(tier: number): number {
    const first = tier * this.#sizeClasses;
    if (this.#sizeClasses === 1) return this.#best(first);
    let best = -1;
    let inner = -1;
    for (let c = 0; c < this.#sizeClasses; c++) {
      const candidate = this.#best(first + c);
      if (candidate === -1) continue;
      if (!this.leaves.isLeaf(candidate)) inner = candidate;
      else if (best === -1 || this.#goesBefore(candidate, c, best)) best = candidate;
    }
    return best === -1 ? inner : best;
  }

  nextOfClass(tier: number, sizeClass: number): number {
    return this.#best(tier * this.#sizeClasses + sizeClass);
  }

  /**
   * Leaves, each with the blocks before it that were released at the same moment: they follow once it is gone. As
   * LRU, and with several size classes, only the next leaf.
   */
  upcoming(tier: number, count: number): number[] {
    const first = this.next(tier);
    if (first === -1) return [];
    const alone = this.asLru || this.#sizeClasses > 1;
    const next = new Set<number>();
    for (const leaf of alone ? [first] : this.leaves.leastFew(tier, count)) {
      let content = this.childCounts.contentOf(leaf);
      const usedUs = this.#blocks.usedUs[content];
      for (let at = leaf; at !== -1 && next.size < count; at = this.#copyIn(content, tier)) {
        if (this.#blocks.usedUs[content] !== usedUs) break;
        next.add(at);
        content = this.#world.parentOf(content);
        if (content < 0) break;
      }
    }
    return [...next];
  }

  /** Replicas of a tier: per size class the leaves from the least worth on, then the others. */
  members(tier: number): number[] {
    const all: number[] = [];
    for (let c = 0; c < this.#sizeClasses; c++) {
      all.push(...this.leaves.members(tier * this.#sizeClasses + c));
    }
    return all;
  }

  /** The content's entered replica in the tier, or -1. */
  #copyIn(content: number, tier: number): number {
    const { base } = this.#world;
    let at = this.childCounts.firstOf(content);
    while (at !== -1 && (at < base[tier] || at >= base[tier + 1])) at = this.childCounts.nextOf(at);
    return at;
  }

  #addLeaf(replica: number, group: number, content: number, nowUs: number, revealed: boolean): void {
    const c = this.#blocks.class[content];
    this.#estimates.use(c);
    this.leaves.addLeaf(group, replica, c, this.#blocks.usedUs[content], nowUs, revealed);
  }

  #becomeInner(content: number, tier: number): void {
    const { base } = this.#world;
    for (let at = this.childCounts.firstOf(content); at !== -1; at = this.childCounts.nextOf(at)) {
      if (at < base[tier] || at >= base[tier + 1] || !this.leaves.isLeaf(at)) continue;
      const group = this.#group[at];
      this.leaves.remove(group, at);
      this.leaves.addInner(group, at);
    }
  }

  #becomeLeaf(content: number, tier: number, nowUs: number): void {
    const { base } = this.#world;
    for (let at = this.childCounts.firstOf(content); at !== -1; at = this.childCounts.nextOf(at)) {
      if (at < base[tier] || at >= base[tier + 1]) continue;
      const group = this.#group[at];
      this.leaves.remove(group, at);
      this.#addLeaf(at, group, content, nowUs, true);
    }
  }

  #best(group: number): number {
    const leaf = this.asLru ? this.leaves.oldest(group) : this.leaves.least(group);
    return leaf === -1 ? this.leaves.inner(group) : leaf;
  }

  /** Whether a leaf of size class `c` goes before the best leaf of the earlier classes. */
  #goesBefore(leaf: number, c: number, best: number): boolean {
    if (this.asLru) return this.leaves.usedUs(leaf) < this.leaves.usedUs(best);
    const { unitBytes } = this.#world;
    const bestBytes = unitBytes[this.#group[best] % this.#sizeClasses];
    return this.leaves.worthOf(leaf) * bestBytes < this.leaves.worthOf(best) * unitBytes[c];
  }

  visitState(visitor: StateVisitor): void {
    this.childCounts.visitState(visitor);
    this.leaves.visitState(visitor);
    visitor.array(this.#group);
  }

  checkIntegrity(): void {
    this.leaves.checkIntegrity();
    const { tiers, base } = this.#world;
    this.childCounts.checkIntegrity((replica) => {
      let tier = 0;
      while (tier + 1 < tiers && replica >= base[tier + 1]) tier++;
      return tier;
    });
  }
}

// The non-empty cells of one group, as a binary heap with the cell of least worth on top; among equals, the lower
// number. A cell knows its place in the heap, so adding and removing take O(log n).

class FilledCells {
  readonly #worth: Float64Array;
  #heap: Int32Array = new Int32Array(32);
  readonly #at: Int32Array;
  #count = 0;

  /** @param worth by cell; call `rerank` after a change */
  constructor(worth: Float64Array) {
    this.#worth = worth;
    this.#at = new Int32Array(worth.length);
  }

  /** The cell of least worth, or -1. */
  get top(): number {
    return this.#count === 0 ? -1 : this.#heap[0];
  }

  /** All cells, in no defined order; valid until the next change. */
  get all(): Int32Array {
    return this.#heap.subarray(0, this.#count);
  }

  /** Cells from the least worth on. */
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

// Entered replicas by cell; a cell is a class at an age. Each group (tier and size class) has its own cells. A cell's
// list runs from the replica used longest ago to the latest, except for leaves made by an eviction. Non-leaf replicas
// are kept in a separate list per group and evicted only if no leaf is left.

const CELLS = CLASSES * BUCKETS;
/** The list of non-leaf replicas. */
const INNER = CELLS;
const LISTS = CELLS + 1;
/** Most replicas passed in search of a place in a list: it bounds the cost of an insertion. */
const STEPS = 32;

class Leaves {
  /** Whether the lists are kept in order of use, for callers that ask for the oldest. */
  keepsOrder = false;
  readonly #worth: Float64Array;
  readonly #first: Int32Array;
  readonly #last: Int32Array;
  readonly #next: Int32Array;
  readonly #prev: Int32Array;
  /** List of each entered replica, within its group; -1 if it has not entered. */
  readonly #cell: Int32Array;
  readonly #usedUs: Float64Array;
  /** Filled cells, by group. */
  readonly #filled: readonly FilledCells[];
  /** The cell of a group's oldest replica, by group; -1 if it has to be found. */
  readonly #oldest: Int32Array;
  /** When the first replica of the oldest cell was used. */
  readonly #oldestUs: Float64Array;

  /** @param worth by cell */
  constructor({ tiers, base, unitBytes }: EvictionWorld, worth: Float64Array) {
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

  /** Updates the oldest cell, or marks it to be found anew. Among equal cells, the lower number is the oldest. */
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

  /** Moves replicas that have aged into a further bucket. */
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

  /** The non-leaf replica that entered longest ago, or -1. */
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

  /** At most `count` leaves of a group, from the least worth on. */
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
   * Links the replica at the back if it was used latest. Any other is a leaf that an eviction made: it goes to the
   * front, so that the rest of its chain goes before other chains, or, where order is kept, to its place near the
   * front.
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
