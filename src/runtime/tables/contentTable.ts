/**
 * The identity of blocks, wherever their copies lie: one row a content, with its key, digest, parent, the chain of its
 * replicas and the chain of jobs that bring it into further tiers. A content exists while a replica, a job, a
 * sequence's block table or a child's row names it; it is in the prefix index for exactly as long. tableMemory.ts says
 * what -1 and 0 mean. How often contents are used is counted below.
 */

import type { Digest } from '../digest.ts';
import { invariant, requirePositive } from '../errors.ts';
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

// How often blocks are used, as estimates that forget; for one block (`BlockUse`) and for all contents of a manager
// (`UseTable`). Powers of one half are made by + - * / and comparisons alone, which every engine rounds alike;
// Math.pow does not promise that.

/** 2 to the power of -x for x >= 0, within 1e-9 of the true value; 0 from x = 60 on. Falls as x grows. */
export function halved(x: number): number {
  if (!(x > 0)) return 1;
  if (x >= 60) return 0;
  const whole = Math.floor(x);
  const y = (x - whole) * Math.LN2;
  // Taylor series of e^-y for 0 <= y < ln 2; the first term left out is below y^11 / 11!
  let value = 1;
  for (let k = 10; k > 0; k--) value = 1 - (y / k) * value;
  for (let i = 0; i < whole; i++) value *= 0.5;
  return value;
}

// How often a block is used: every use adds 1 to a weight that halves with each half-life. The frequency is that
// weight over the time that it stands for:
//
//     weight(t) = sum over uses of 2^-((t - use) / halfLife)
//     time(t)   = integral of the same decay since the first use = halfLife / ln 2 * (1 - 2^-(age / halfLife))
//     frequency = weight / max(time, youth)
//
// So the frequency is right for a young block too, and falls by itself without uses; no pass has to visit the block.
// `youth` keeps the first use of a block from counting as an infinite frequency.

export interface UseRates {
  /** Microseconds after which a use counts half. */
  readonly halfLifeUs: number;
  /** Microseconds, at least, over which a frequency is taken. */
  readonly youthUs: number;
}

/** Uses of a block as they were seen. Times are microseconds of the manager. */
export interface UseHistory {
  readonly uses: number;
  readonly firstUseUs: number;
  readonly lastUseUs: number;
  /** Uses per second as of `nowUs`, which is not before the last use; 0 for a block never used. */
  frequencyAt(nowUs: number): number;
}

/** The weight after `elapsedUs` without a use. */
function decayed(weight: number, elapsedUs: number, { halfLifeUs }: UseRates): number {
  return weight * halved(elapsedUs / halfLifeUs);
}

/** Uses per second: `weight` is as of the last use. */
function frequency(
  weight: number,
  firstUseUs: number,
  lastUseUs: number,
  nowUs: number,
  rates: UseRates,
): number {
  if (weight === 0) return 0;
  const now = Math.max(nowUs, lastUseUs);
  const { halfLifeUs, youthUs } = rates;
  const seenUs = (halfLifeUs / Math.LN2) * (1 - halved((now - firstUseUs) / halfLifeUs));
  return (1e6 * decayed(weight, now - lastUseUs, rates)) / Math.max(seenUs, youthUs);
}

/** The history of one block. */
export class BlockUse implements UseHistory {
  readonly #rates: UseRates;
  uses = 0;
  firstUseUs = 0;
  lastUseUs = 0;
  #weight = 0;

  constructor(rates: UseRates) {
    this.#rates = rates;
  }

  /** Counts a use. A time before the last use counts as the last use's. */
  used(nowUs: number): void {
    const now = this.uses === 0 ? nowUs : Math.max(nowUs, this.lastUseUs);
    if (this.uses === 0) this.firstUseUs = now;
    this.#weight = decayed(this.#weight, now - this.lastUseUs, this.#rates) + 1;
    this.lastUseUs = now;
    this.uses++;
  }

  frequencyAt(nowUs: number): number {
    return frequency(this.#weight, this.firstUseUs, this.lastUseUs, nowUs, this.#rates);
  }
}

// The same histories for all contents of a manager, in typed arrays: a use costs a few writes and makes no
// garbage. A content's row is cleared when the manager forgets it.

export const HALF_LIFE_US_DEFAULT = 20_000_000;
/** Microseconds: a single use counts at first as 0.2 a second, twice the notes' threshold of a warm block. */
const YOUTH_US_DEFAULT = 5_000_000;

/** @throws TKV_CONFIG for a time that is not positive */
export function useRates(
  halfLifeUs: number = HALF_LIFE_US_DEFAULT,
  youthUs: number = YOUTH_US_DEFAULT,
): UseRates {
  return {
    halfLifeUs: requirePositive('halfLifeUs', halfLifeUs),
    youthUs: requirePositive('youthUs', youthUs),
  };
}

export class UseTable {
  readonly #rates: UseRates;
  readonly #uses: Float64Array;
  readonly #firstUs: Float64Array;
  readonly #lastUs: Float64Array;
  readonly #weight: Float64Array;

  constructor(contents: number, rates: UseRates) {
    this.#rates = rates;
    this.#uses = new Float64Array(contents);
    this.#firstUs = new Float64Array(contents);
    this.#lastUs = new Float64Array(contents);
    this.#weight = new Float64Array(contents);
  }

  used(content: number, nowUs: number): void {
    if (this.#uses[content]++ === 0) this.#firstUs[content] = nowUs;
    this.#weight[content] = 1 + decayed(this.#weight[content], nowUs - this.#lastUs[content], this.#rates);
    this.#lastUs[content] = nowUs;
  }

  forget(content: number): void {
    this.#uses[content] = 0;
    this.#weight[content] = 0;
  }

  frequencyAt(content: number, nowUs: number): number {
    return frequency(
      this.#weight[content],
      this.#firstUs[content],
      this.#lastUs[content],
      nowUs,
      this.#rates,
    );
  }

  lastUseUs(content: number): number {
    return this.#lastUs[content];
  }

  /** The history as it is now: valid until the content is used again or forgotten. */
  of(content: number): UseHistory {
    invariant(content >= 0 && content < this.#uses.length, 'a history of a content that there is');
    return {
      uses: this.#uses[content],
      firstUseUs: this.#firstUs[content],
      lastUseUs: this.#lastUs[content],
      frequencyAt: (nowUs) => this.frequencyAt(content, nowUs),
    };
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#uses);
    visitor.array(this.#firstUs);
    visitor.array(this.#lastUs);
    visitor.array(this.#weight);
  }
}
