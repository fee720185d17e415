/**
 * Memory of the hazard policy: of a block (its cohort, uses, chain pace, class and when it was released), of requests
 * whose blocks are in use, of returns, and whether the estimates may be followed. A block is remembered by content
 * while the manager knows the content, and by key (a ghost) for a while after.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot.ts';
import type { EvictionWorld } from '../evictionPolicy.ts';
import { GhostKeys } from '../ghostKeys.ts';
import { bucketOf, ClassPart, type Cohorts, classOf } from './learning.ts';

const LEAST_GHOSTS = 2 ** 16;
/** Class of a block that came without a request, such as one that a store kept from an earlier run. */
const NO_REQUEST = classOf(ClassPart.KNOWN, 1, 0, 0);

export class HazardBlocks {
  readonly known: Uint8Array;
  /** Cohort of the last use; 0 while the block is in use or if there was none. */
  readonly cohort: Float64Array;
  readonly uses: Uint8Array;
  readonly pace: Uint8Array;
  readonly class: Uint16Array;
  readonly usedUs: Float64Array;
  readonly #world: EvictionWorld;
  readonly #cohorts: Cohorts;
  readonly #ghosts: GhostKeys;
  #ghostCohort: Float64Array;
  #ghostUses: Uint8Array;
  #ghostPace: Uint8Array;
  #ghostUsedUs: Float64Array;

  constructor(world: EvictionWorld, cohorts: Cohorts) {
    const { contents } = world;
    this.#world = world;
    this.#cohorts = cohorts;
    this.known = new Uint8Array(contents);
    this.cohort = new Float64Array(contents);
    this.uses = new Uint8Array(contents);
    this.pace = new Uint8Array(contents);
    this.class = new Uint16Array(contents);
    this.usedUs = new Float64Array(contents);
    this.#ghosts = new GhostKeys(Math.max(LEAST_GHOSTS, 2 * contents));
    this.#ghostCohort = new Float64Array(this.#ghosts.rows);
    this.#ghostUses = new Uint8Array(this.#ghosts.rows);
    this.#ghostPace = new Uint8Array(this.#ghosts.rows);
    this.#ghostUsedUs = new Float64Array(this.#ghosts.rows);
  }

  get ghosts(): number {
    return this.#ghosts.count;
  }

  /** Registers a content that is not known yet. @returns whether its key was a ghost */
  recall(content: number, nowUs: number): boolean {
    this.known[content] = 1;
    this.class[content] = NO_REQUEST;
    const ghost = this.#ghosts.find(this.#world.keys, content * 4);
    if (ghost === -1) {
      this.cohort[content] = 0;
      this.uses[content] = 0;
      this.pace[content] = 0;
      this.usedUs[content] = nowUs;
      return false;
    }
    this.cohort[content] = this.#ghostCohort[ghost];
    this.uses[content] = this.#ghostUses[ghost];
    this.pace[content] = this.#ghostPace[ghost];
    this.usedUs[content] = this.#ghostUsedUs[ghost];
    this.#ghosts.remove(ghost);
    return true;
  }

  /** The content's row will be reused; its record moves under its key. */
  bury(content: number): void {
    this.known[content] = 0;
    if (this.uses[content] === 0) return;
    if (this.#ghosts.isFull) {
      const oldest = this.#ghosts.oldest();
      this.#cohorts.forgotten(this.#ghostCohort[oldest]);
      this.#ghosts.remove(oldest);
    }
    const ghost = this.#ghosts.add(0, this.#world.keys, content * 4);
    if (this.#ghosts.rows > this.#ghostUses.length) this.#grow(this.#ghosts.rows);
    this.#ghostCohort[ghost] = this.cohort[content];
    this.#ghostUses[ghost] = this.uses[content];
    this.#ghostPace[ghost] = this.pace[content];
    this.#ghostUsedUs[ghost] = this.usedUs[content];
  }

  #grow(rows: number): void {
    const grown = <T extends Float64Array | Uint8Array>(from: T, into: T): T => {
      into.set(from);
      return into;
    };
    this.#ghostCohort = grown(this.#ghostCohort, new Float64Array(rows));
    this.#ghostUses = grown(this.#ghostUses, new Uint8Array(rows));
    this.#ghostPace = grown(this.#ghostPace, new Uint8Array(rows));
    this.#ghostUsedUs = grown(this.#ghostUsedUs, new Float64Array(rows));
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    this.#ghosts.visitState(visitor);
    this.#ghostCohort = visitor.growing(this.#ghostCohort);
    this.#ghostUses = visitor.growing(this.#ghostUses);
    this.#ghostPace = visitor.growing(this.#ghostPace);
    this.#ghostUsedUs = visitor.growing(this.#ghostUsedUs);
  }

  /** @param returned blocks of `cohort` that returned and are not counted yet */
  checkIntegrity(cohort: number, returned: number): void {
    this.#ghosts.checkIntegrity();
    const members = new Map<number, number>();
    if (cohort > 0 && returned > 0) members.set(cohort, returned);
    const count = (one: number): void => {
      if (one > 0) members.set(one, (members.get(one) ?? 0) + 1);
    };
    for (let content = 0; content < this.known.length; content++) {
      if (this.known[content] === 1) count(this.cohort[content]);
    }
    for (let ghost = this.#ghosts.oldest(); ghost !== -1; ghost = this.#ghosts.newer(ghost)) {
      invariant(this.#ghostUses[ghost] > 0, 'a ghost was used');
      count(this.#ghostCohort[ghost]);
    }
    this.#cohorts.checkIntegrity(members);
  }
}

// Requests whose blocks are in use: they decide the class of their blocks once released. A visit is kept until its
// last block is released, or taken over by another request that uses it.

/** Uses above which a block is a shared prompt, which says nothing about one chain's pace. */
const SHARED = 8;

export class Visits {
  /** Open visits by row: the number, the content touched last, tokens that were not cached. */
  number: Float64Array = new Float64Array(16);
  last: Int32Array = new Int32Array(16);
  newTokens: Float64Array = new Float64Array(16);
  /** Whether LRU would have found every block touched so far. */
  lruFinds: Uint8Array = new Uint8Array(16);
  /** Blocks that the visit may still find in the cohort at LRU's end. */
  lruRoom: Int32Array = new Int32Array(16);
  #startedUs: Float64Array = new Float64Array(16);
  /** Blocks in use whose last touch was this visit's. */
  #blocks: Int32Array = new Int32Array(16);
  /**
   * The deepest known block before this use: its uses (0 before the first), its pace, and when it was released.
   */
  #deepUses: Uint8Array = new Uint8Array(16);
  #deepPace: Uint8Array = new Uint8Array(16);
  #deepUsedUs: Float64Array = new Float64Array(16);
  /** Cached answer of `paceOf`; -1 if it has to be computed. */
  #pace: Int16Array = new Int16Array(16);
  readonly #rowOf: Map<number, number> = new Map();
  readonly #free: number[] = [];
  #rows = 0;

  /** The row of a visit that has blocks in use, or -1. */
  find(number: number): number {
    return this.#rowOf.get(number) ?? -1;
  }

  begin(number: number, nowUs: number, lruRoom: number): number {
    const v = this.#free.pop() ?? this.#rows++;
    if (v === this.#blocks.length) this.#grow(v * 2);
    this.#rowOf.set(number, v);
    this.number[v] = number;
    this.last[v] = -1;
    this.newTokens[v] = 0;
    this.lruFinds[v] = 1;
    this.lruRoom[v] = lruRoom;
    this.#startedUs[v] = nowUs;
    this.#blocks[v] = 0;
    this.#deepUses[v] = 0;
    this.#pace[v] = -1;
    return v;
  }

  hold(v: number): void {
    this.#blocks[v]++;
  }

  letGo(v: number): void {
    invariant(this.#blocks[v] > 0, 'a visit releases a block that it has');
    if (--this.#blocks[v] > 0) return;
    this.#rowOf.delete(this.number[v]);
    this.#free.push(v);
  }

  /** The visit found a known block, deeper than the ones before. */
  knows(v: number, uses: number, pace: number, usedUs: number): void {
    this.#pace[v] = -1;
    this.#deepUses[v] = uses;
    this.#deepPace[v] = pace;
    this.#deepUsedUs[v] = usedUs;
  }

  /** Mean bucket of the gaps between uses of the chain, plus 1, times 8; 0 if it has no gap. */
  paceOf(v: number): number {
    if (this.#pace[v] === -1) this.#pace[v] = this.#newPace(v);
    return this.#pace[v];
  }

  #newPace(v: number): number {
    const uses = this.#deepUses[v];
    if (uses === 0 || uses > SHARED) return 0;
    const gap = Math.min(255, 8 * bucketOf(this.#startedUs[v] - this.#deepUsedUs[v]) + 8);
    const before = this.#deepPace[v];
    return before === 0 ? gap : (before + gap) >> 1;
  }

  #grow(rows: number): void {
    const grown = <T extends Float64Array | Int32Array | Int16Array | Uint8Array>(from: T, into: T): T => {
      into.set(from);
      return into;
    };
    this.number = grown(this.number, new Float64Array(rows));
    this.last = grown(this.last, new Int32Array(rows));
    this.newTokens = grown(this.newTokens, new Float64Array(rows));
    this.lruFinds = grown(this.lruFinds, new Uint8Array(rows));
    this.lruRoom = grown(this.lruRoom, new Int32Array(rows));
    this.#startedUs = grown(this.#startedUs, new Float64Array(rows));
    this.#blocks = grown(this.#blocks, new Int32Array(rows));
    this.#deepUses = grown(this.#deepUses, new Uint8Array(rows));
    this.#deepPace = grown(this.#deepPace, new Uint8Array(rows));
    this.#pace = grown(this.#pace, new Int16Array(rows));
    this.#deepUsedUs = grown(this.#deepUsedUs, new Float64Array(rows));
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this);
    this.#startedUs = visitor.growing(this.#startedUs);
    this.#blocks = visitor.growing(this.#blocks);
    this.#deepUses = visitor.growing(this.#deepUses);
    this.#deepPace = visitor.growing(this.#deepPace);
    this.#deepUsedUs = visitor.growing(this.#deepUsedUs);
    this.#pace = visitor.growing(this.#pace);
    visitor.value(
      () => [...this.#rowOf],
      (saved) => {
        this.#rowOf.clear();
        for (const [number, row] of saved) this.#rowOf.set(number, row);
      },
    );
    visitor.list(this.#free);
    this.#rows = visitor.number(this.#rows);
  }

  /** @param inUse blocks in use by row of visit */
  checkIntegrity(inUse: ReadonlyMap<number, number>): void {
    invariant(inUse.size === this.#rowOf.size, 'a visit is kept while it has blocks in use');
    for (const [number, v] of this.#rowOf) {
      invariant(this.number[v] === number, 'a visit is found under its number');
      invariant(this.#blocks[v] === (inUse.get(v) ?? 0), 'a visit counts its blocks in use');
    }
  }
}

// Blocks that returned, counted in runs: blocks of one cohort that one visit touched in a row. A run teaches the
// cohort and tells the guard what LRU would have found of it.

export class Returns {
  readonly #cohorts: Cohorts;
  readonly #guard: Guard;
  readonly #visits: Visits;
  /** Cohort of the run that is not counted yet. */
  #cohort = 0;
  #row = 0;
  #us = 0;
  #length = 0;

  constructor(cohorts: Cohorts, guard: Guard, visits: Visits) {
    this.#cohorts = cohorts;
    this.#guard = guard;
    this.#visits = visits;
  }

  /** Adds a returned block of the cohort. @param row of the visit that touched it */
  add(row: number, cohort: number, nowUs: number): void {
    if (cohort !== this.#cohort || row !== this.#row || this.#length === 0) {
      this.flush();
      this.#cohort = cohort;
      this.#row = row;
      this.#us = nowUs;
    }
    this.#length++;
  }

  /** Counts the current run. */
  flush(): void {
    if (this.#length === 0) return;
    const length = this.#length;
    const cohort = this.#cohort;
    const row = this.#row;
    const visits = this.#visits;
    this.#length = 0;
    this.#cohorts.close();
    if (visits.lruFinds[row] === 1) {
      let found = length;
      if (cohort < this.#cohorts.firstHeld) {
        found =
          cohort > 0 && cohort === this.#cohorts.firstHeld - 1 ? Math.min(length, visits.lruRoom[row]) : 0;
        visits.lruRoom[row] -= found;
      }
      if (found < length) visits.lruFinds[row] = 0;
      this.#guard.lruFound(found);
    }
    this.#cohorts.returned(cohort, length, this.#us);
  }

  /** The cohort of the current run, and its blocks that are not counted yet. */
  get cohort(): number {
    return this.#cohort;
  }

  get length(): number {
    return this.#length;
  }

  visitState(visitor: StateVisitor): void {
    this.#cohort = visitor.number(this.#cohort);
    this.#row = visitor.number(this.#row);
    this.#us = visitor.number(this.#us);
    this.#length = visitor.number(this.#length);
  }
}

// The guard: whether the policy follows its estimates or evicts as LRU would. First it learns. Then it compares its
// hits with those of an LRU of the same size: the estimates may lose what they won before, plus a small share of all
// lookups and one mean request. While the policy evicts as LRU, both find about the same, the allowance grows with
// each lookup, and the estimates get another try.

/** Returns to be seen before estimates are followed at all (a whole cohort counts as one): fewer say little. */
const EVIDENCE = 128;
/**
 * Lookups, in multiples of what the tiers hold, before estimates are followed: until then no block has been seen for
 * as long as the cache can keep it.
 */
const LEARNING = 4;
/** Lookups, in multiples of what the tiers hold, after which both counts are halved, so that the past weighs less. */
const MEMORY = 1024;

export class Guard {
  readonly #share: number;
  /** Blocks that LRU would have found beyond the blocks found; negative while the policy is ahead. */
  #behind = 0;
  #lookups = 0;
  #requests = 1;
  #asLru = false;

  /** @param share of all lookups by which the policy may be behind LRU; 1 turns the guard off */
  constructor(share: number) {
    this.#share = share;
  }

  get asLru(): boolean {
    return this.#asLru;
  }

  get behind(): number {
    return this.#behind;
  }

  lruFound(blocks: number): void {
    this.#behind += blocks;
  }

  /**
   * A request for `blocks` begins.
   * @param capacity blocks that the tiers hold
   * @param evidence returns seen so far
   */
  begin(blocks: number, found: number, capacity: number, evidence: number): void {
    const young = evidence < EVIDENCE || this.#lookups < LEARNING * capacity;
    this.#asLru = young || this.#behind > (this.#share + 1 / this.#requests) * this.#lookups;
    this.#lookups += blocks;
    this.#requests++;
    this.#behind -= found;
    if (this.#lookups > MEMORY * (capacity + blocks)) {
      this.#lookups *= 0.5;
      this.#behind *= 0.5;
      this.#requests *= 0.5;
    }
  }

  visitState(visitor: StateVisitor): void {
    this.#behind = visitor.number(this.#behind);
    this.#lookups = visitor.number(this.#lookups);
    this.#requests = visitor.number(this.#requests);
    this.#asLru = visitor.flag(this.#asLru);
  }
}
