/**
 * Policies that give each replica one number as it enters: the lowest goes first; among equals, the one that entered
 * first. A subclass computes the number.
 */

import { invariant } from '../errors.ts';
import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { EvictionPolicy, EvictionWorld, Visit } from './evictionPolicy.ts';

export abstract class RankedPolicy implements EvictionPolicy {
  readonly #ranked: RankedReplicas;

  constructor(world: EvictionWorld) {
    this.#ranked = new RankedReplicas(world);
  }

  /** The rank with which the replica enters. */
  protected abstract rankOf(replica: number, content: number): number;

  enter(replica: number, tier: number, sizeClass: number, content: number): void {
    this.#ranked.enter(replica, tier, sizeClass, this.rankOf(replica, content));
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#ranked.leave(replica, tier, sizeClass);
  }

  touch(_content: number, _visit: Visit): void {}

  victim(tier: number): number {
    return this.#ranked.first(tier);
  }

  victimOfClass(tier: number, sizeClass: number): number {
    return this.#ranked.firstOfClass(tier, sizeClass);
  }

  forgotten(_content: number): void {}

  dump(tier: number): number[] {
    return this.#ranked.dump(tier);
  }

  visitState(visitor: StateVisitor): void {
    this.#ranked.visitState(visitor);
  }

  checkIntegrity(): void {
    this.#ranked.checkIntegrity();
  }
}

// Entered replicas in order of rank, by tier and size class: the lowest rank first; among equals, the one that
// entered first. Each (tier, size class) is a binary heap over replica numbers. A replica knows its place in its
// heap, so entering, leaving and re-ranking take O(log n) and make no garbage.

export class RankedReplicas {
  readonly #classes: number;
  readonly #heaps: Int32Array[];
  readonly #sizes: Int32Array;
  readonly #replicas: number;
  #rank: Float64Array;
  #order: Float64Array;
  /** Place in its heap; -1 if it has not entered. */
  #at: Int32Array;
  #entered = 0;

  constructor({ tiers, base, unitBytes, whole }: EvictionWorld) {
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

  /** The replica of lowest rank in a tier, or -1. */
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

// Counts, per tier, the entered children of each content: replicas whose content follows it in a chain. A content
// without any is a leaf. The parent is the one known when the child entered; forgetting a content clears its count,
// so a reused row starts at 0. Only entered children count: a held block never keeps its parent from being evicted.

export class ChildCounts {
  readonly #contents: number;
  readonly #children: Int32Array;
  /** Times that the content's row was given to another content. */
  readonly #turn: Uint32Array;
  /** Content of each replica, the content that counts it (-1 for none), and that content's turn then. */
  readonly #content: Int32Array;
  readonly #parent: Int32Array;
  readonly #parentTurn: Uint32Array;
  /** First entered replica of each content, and the next one of the same content. */
  readonly #first: Int32Array;
  readonly #next: Int32Array;

  constructor({ tiers, base, contents }: EvictionWorld) {
    const replicas = base[tiers];
    this.#contents = contents;
    this.#children = new Int32Array(tiers * contents);
    this.#turn = new Uint32Array(contents);
    this.#content = new Int32Array(replicas).fill(-1);
    this.#parent = new Int32Array(replicas).fill(-1);
    this.#parentTurn = new Uint32Array(replicas);
    this.#first = new Int32Array(contents).fill(-1);
    this.#next = new Int32Array(replicas).fill(-1);
  }

  contentOf(replica: number): number {
    return this.#content[replica];
  }

  hasChildren(content: number, tier: number): boolean {
    return this.#children[tier * this.#contents + content] > 0;
  }

  /** The first entered replica of a content, or -1. */
  firstOf(content: number): number {
    return this.#first[content];
  }

  /** The next entered replica of the same content, or -1. */
  nextOf(replica: number): number {
    return this.#next[replica];
  }

  /** @returns the parent if this is its first child in the tier, else -1 */
  enter(replica: number, tier: number, content: number, parent: number): number {
    this.#content[replica] = content;
    this.#next[replica] = this.#first[content];
    this.#first[content] = replica;
    this.#parent[replica] = parent;
    if (parent < 0) return -1;
    this.#parentTurn[replica] = this.#turn[parent];
    return ++this.#children[tier * this.#contents + parent] === 1 ? parent : -1;
  }

  /** @returns the parent if this was its last child in the tier, else -1 */
  leave(replica: number, tier: number): number {
    const content = this.#content[replica];
    if (this.#first[content] === replica) this.#first[content] = this.#next[replica];
    else {
      let before = this.#first[content];
      while (this.#next[before] !== replica) before = this.#next[before];
      this.#next[before] = this.#next[replica];
    }
    this.#next[replica] = -1;
    this.#content[replica] = -1;
    const parent = this.#parent[replica];
    if (parent < 0 || this.#parentTurn[replica] !== this.#turn[parent]) return -1;
    return --this.#children[tier * this.#contents + parent] === 0 ? parent : -1;
  }

  forgotten(content: number): void {
    invariant(this.#first[content] === -1, 'a forgotten content has no entered replica');
    this.#turn[content]++;
    for (let at = content; at < this.#children.length; at += this.#contents) this.#children[at] = 0;
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#children);
    visitor.array(this.#turn);
    visitor.array(this.#content);
    visitor.array(this.#parent);
    visitor.array(this.#parentTurn);
    visitor.array(this.#first);
    visitor.array(this.#next);
  }

  checkIntegrity(tierOf: (replica: number) => number): void {
    const children = new Int32Array(this.#children.length);
    for (let replica = 0; replica < this.#content.length; replica++) {
      const content = this.#content[replica];
      if (content === -1) continue;
      let at = this.#first[content];
      while (at !== replica && at !== -1) at = this.#next[at];
      invariant(at === replica, 'a content names its entered replicas');
      const parent = this.#parent[replica];
      if (parent < 0 || this.#parentTurn[replica] !== this.#turn[parent]) continue;
      children[tierOf(replica) * this.#contents + parent]++;
    }
    for (let at = 0; at < children.length; at++) {
      invariant(children[at] === this.#children[at], 'a content counts its entered children');
    }
  }
}

// Blocks that the tiers hold now: the cache size that some policies' rules name.

/** Blocks of size class 0 that would take the bytes of all tiers together. */
export function blocksHeld({ tiers, residentBytes, unitBytes }: EvictionWorld): number {
  let bytes = 0;
  for (let tier = 0; tier < tiers; tier++) bytes += residentBytes[tier];
  return Math.floor(bytes / unitBytes[0]);
}
