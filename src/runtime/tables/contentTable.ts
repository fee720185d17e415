/**
 * What blocks *are*, wherever their copies lie: one row a content, with its key, digest, parent, the chain of its
 * replicas and the chain of jobs that bring it into further tiers. A content exists while a replica, a job, a
 * sequence's block table or a child's row names it; it is in the prefix index for exactly as long. tableMemory.ts
 * says what -1 and 0 mean.
 */

import type { Digest } from '../digest.ts';
import { invariant } from '../errors.ts';
import { firstRows, grown, rowsFor } from '../growing.ts';
import type { StateVisitor } from '../snapshot.ts';
import { PrefixIndex, PrefixSearch } from './prefixIndex.ts';
import { ordinaryMemory, type TableMemory, uint32Table } from './tableMemory.ts';

/** Parent of a content that begins its chain. */
export const NO_PARENT = -1;
/** Parent of a content whose parent was unknown when it was made. */
export const UNKNOWN_PARENT = -2;

export class ContentTable {
  readonly capacity: number;
  keys: Uint32Array;
  sizeClass: Uint8Array;
  tokens: Uint16Array;
  /** Owner whose room its copies take: the owner that made it first. */
  owner: Uint16Array;
  digestLo: Uint32Array;
  digestHi: Uint32Array;
  /** 1 once the digest is known, that is, once the first replica was sealed. */
  sealed: Uint8Array;
  /**
   * First of the chain of ready replicas, the fastest tier first; -1 for none. The replica table has the
   * links.
   */
  replica: Int32Array;
  /**
   * First of the chain of jobs that bring the content into a tier; -1 for none. The job table has the links.
   */
  incoming: Int32Array;
  /**
   * When the content last left HBM downwards, in microseconds; NaN if never. Kept where there is a lower
   * tier.
   */
  offloadedAtUs: Float64Array;
  readonly index: PrefixIndex;
  /** Exact while there are no holes and keys are chained. */
  readonly search: PrefixSearch;
  /**
   * Content of the block before it in the chain, NO_PARENT or UNKNOWN_PARENT. A child keeps its parent's row
   * alive.
   */
  #parent: Int32Array;
  /** Ready replicas and incoming jobs. */
  #copies: Uint16Array;
  #uses: Int32Array;
  readonly #onForgotten: (content: number) => void;
  /** First of the chain of returned rows. */
  #nextFree = -1;
  /** Rows from here on were never used; they are taken in order when no returned row is left. */
  #made = 0;
  #count = 0;
  #holes = 0;

  /**
   * @param memory gives the memory of keys and index, whole; without it all rows are added as they are used
   * @param onForgotten told of each content just before its row is given up
   * @param whole whether all rows are allocated at the start
   */
  constructor(
    capacity: number,
    tiers: number,
    memory: TableMemory = ordinaryMemory,
    onForgotten: (content: number) => void = () => {},
    whole = true,
  ) {
    this.capacity = capacity;
    const rows = firstRows(capacity, whole);
    this.#onForgotten = onForgotten;
    this.keys = uint32Table(memory, rows * 4);
    this.sizeClass = new Uint8Array(rows);
    this.tokens = new Uint16Array(rows);
    this.owner = new Uint16Array(rows);
    this.digestLo = new Uint32Array(rows);
    this.digestHi = new Uint32Array(rows);
    this.sealed = new Uint8Array(rows);
    this.replica = new Int32Array(rows).fill(-1);
    this.incoming = new Int32Array(rows).fill(-1);
    this.offloadedAtUs = new Float64Array(tiers > 1 ? rows : 0).fill(Number.NaN);
    this.index = new PrefixIndex(this.keys, capacity, memory, rows);
    this.search = new PrefixSearch(this.index);
    this.#copies = new Uint16Array(rows);
    this.#uses = new Int32Array(rows);
    // While a row is free, its parent is the next free row.
    this.#parent = new Int32Array(rows);
  }

  get count(): number {
    return this.#count;
  }

  /**
   * Contents that are known but nowhere present, or whose parent is unknown. At 0, a chain's present blocks are a
   * prefix of it: every present content has all its ancestors present.
   */
  get holes(): number {
    return this.#holes;
  }

  /** Content with the key at `keys[at..at + 4)`, or -1. */
  find(keys: Uint32Array, at: number): number {
    return this.index.find(keys, at);
  }

  /** Whether the content is ready somewhere or on its way. */
  isPresent(content: number): boolean {
    return this.#copies[content] > 0;
  }

  /** The content with this key, made if it is new. It lives from the first `hold`. */
  intern(
    keys: Uint32Array,
    at: number,
    sizeClass: number,
    tokens: number,
    parent: number,
    owner = 0,
  ): number {
    const known = this.index.find(keys, at);
    if (known !== -1) return known;
    if (parent >= 0) this.hold(parent);
    const content = this.#takeRow();
    invariant(content !== -1, 'there are as many contents as slots and jobs');
    this.#count++;
    for (let w = 0; w < 4; w++) this.keys[content * 4 + w] = keys[at + w];
    this.sizeClass[content] = sizeClass;
    this.tokens[content] = tokens;
    this.owner[content] = owner;
    this.sealed[content] = 0;
    if (this.offloadedAtUs.length > 0) this.offloadedAtUs[content] = Number.NaN;
    this.#parent[content] = parent;
    if (parent === UNKNOWN_PARENT) this.#holes++;
    this.index.add(content);
    return content;
  }

  #takeRow(): number {
    if (this.#nextFree === -1) {
      if (this.#made < this.capacity) {
        if (this.#made === this.sealed.length) this.#grow();
        return this.#made++;
      }
      this.#forgetAbsentParents();
      if (this.#nextFree === -1) return -1;
    }
    const content = this.#nextFree;
    this.#nextFree = this.#parent[content];
    return content;
  }

  #grow(): void {
    const rows = rowsFor(this.#made, this.sealed.length, this.capacity);
    this.keys = grown(this.keys, rows * 4);
    this.sizeClass = grown(this.sizeClass, rows);
    this.tokens = grown(this.tokens, rows);
    this.owner = grown(this.owner, rows);
    this.digestLo = grown(this.digestLo, rows);
    this.digestHi = grown(this.digestHi, rows);
    this.sealed = grown(this.sealed, rows);
    this.replica = grown(this.replica, rows, -1);
    this.incoming = grown(this.incoming, rows, -1);
    if (this.offloadedAtUs.length > 0) this.offloadedAtUs = grown(this.offloadedAtUs, rows, Number.NaN);
    this.#copies = grown(this.#copies, rows);
    this.#uses = grown(this.#uses, rows);
    this.#parent = grown(this.#parent, rows);
    this.index.grow(this.keys, rows);
  }

  /** Rows below this have been used. */
  get rows(): number {
    return this.#made;
  }

  /**
   * Sets the parent of a content that came without it. Only for chained keys: there a content has one parent, and no
   * content is its own ancestor.
   */
  learnParent(content: number, parent: number): void {
    if (parent === UNKNOWN_PARENT || this.#parent[content] !== UNKNOWN_PARENT) return;
    this.#parent[content] = parent;
    this.#holes--;
    if (parent >= 0) this.hold(parent);
  }

  /** Gives back a row that was made and never held. */
  dropUnused(content: number): void {
    if (content < 0 || this.#uses[content] !== 0) return;
    this.hold(content);
    this.unhold(content);
  }

  /** Content of the block before it; NO_PARENT or UNKNOWN_PARENT, both negative, otherwise. */
  parentOf(content: number): number {
    return this.#parent[content];
  }

  /** The parent's key: zeros for a content that begins its chain, undefined if the parent is unknown. */
  parentKey(content: number): Uint32Array | undefined {
    const parent = this.#parent[content];
    if (parent === UNKNOWN_PARENT) return undefined;
    return parent === NO_PARENT ? new Uint32Array(4) : this.key(parent);
  }

  /**
   * Frees rows that only live for their children. One row for each slot and job is enough while every row has one of
   * them; rows kept only for children have neither, and the table has room for as many again. When all rows are in
   * use, these are forgotten.
   */
  #forgetAbsentParents(): void {
    for (let child = 0; child < this.#made; child++) {
      if (this.#uses[child] === 0) continue;
      const parent = this.#parent[child];
      if (parent < 0 || this.#copies[parent] > 0) continue;
      this.#parent[child] = UNKNOWN_PARENT;
      this.#holes++;
      this.unhold(parent);
    }
  }

  hold(content: number): void {
    if (this.#uses[content]++ === 0) this.#holes++;
  }

  unhold(content: number): void {
    for (let at = content; at >= 0; ) {
      invariant(this.#uses[at] > 0, 'a content is released as often as it was held');
      if (--this.#uses[at] > 0) return;
      invariant(this.#copies[at] === 0, 'a content with copies is held');
      const parent = this.#parent[at];
      this.#holes -= parent === UNKNOWN_PARENT ? 2 : 1;
      this.#onForgotten(at);
      this.index.delete(at);
      this.#parent[at] = this.#nextFree;
      this.#nextFree = at;
      this.#count--;
      at = parent;
    }
  }

  /** A held content got a ready replica or a job that brings it one. */
  addCopy(content: number): void {
    invariant(this.#copies[content] < 0xffff, 'copies of one content within limits');
    if (this.#copies[content]++ === 0) this.#holes--;
  }

  removeCopy(content: number): void {
    invariant(this.#copies[content] > 0, 'a copy is taken away as often as it was added');
    if (--this.#copies[content] === 0) this.#holes++;
  }

  uses(content: number): number {
    return this.#uses[content];
  }

  digest(content: number): Digest {
    return { lo: this.digestLo[content], hi: this.digestHi[content] };
  }

  key(content: number): Uint32Array {
    return this.keys.slice(content * 4, content * 4 + 4);
  }

  visitState(visitor: StateVisitor): void {
    visitor.constant(this.capacity);
    visitor.fields(this);
    this.index.visitState(visitor, this.keys);
    this.#parent = visitor.growing(this.#parent);
    this.#copies = visitor.growing(this.#copies);
    this.#uses = visitor.growing(this.#uses);
    this.#made = visitor.number(this.#made);
    this.#nextFree = visitor.number(this.#nextFree);
    this.#count = visitor.number(this.#count);
    this.#holes = visitor.number(this.#holes);
  }

  /**
   * @param usesOfOthers uses of each content by replicas, jobs and sequences; @param copies replicas and jobs
   */
  checkIntegrity(usesOfOthers: Int32Array, copies: Int32Array): void {
    this.index.checkIntegrity();
    invariant(this.index.size === this.#count, 'the index holds every content');
    const uses = usesOfOthers.slice();
    let holes = 0;
    for (let content = 0; content < this.#made; content++) {
      if (this.#uses[content] === 0) continue;
      const parent = this.#parent[content];
      if (parent >= 0) uses[parent]++;
      if (parent === UNKNOWN_PARENT) holes++;
      if (this.#copies[content] === 0) holes++;
      invariant(copies[content] === this.#copies[content], 'a content knows its copies');
    }
    for (let content = 0; content < this.#made; content++) {
      invariant(uses[content] === this.#uses[content], 'a content lives as long as something names it');
    }
    invariant(holes === this.#holes, 'the table knows where prefixes may have holes');
  }
}
