/**
 * tierkv's own eviction policy. Every use of a chain teaches it how soon blocks of a kind return; the block with the
 * fewest expected returns per time of holding goes first. Only leaves (blocks that no cached block follows) are
 * considered, so prefixes stay whole. A guard keeps it from being worse than LRU for long.
 *
 *     touch --> in use --(released: enter)--> class, cohort, cell --(evicted)--> ghost --(touch)--> in use
 *
 * Ages count from the moment at which a block was released. Equal calls give equal decisions.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot.ts';
import type { EvictionPolicy, EvictionWorld, Visit } from '../evictionPolicy.ts';
import { Guard, HazardBlocks, Returns, Visits } from './blocks.ts';
import { Candidates } from './candidates.ts';
import { ClassPart, Cohorts, classOf, Estimates } from './learning.ts';

/** Requests between two refits of the estimates, at least. */
const REFIT_REQUESTS = 64;
/**
 * Microseconds that each request adds to the policy's clock, so that ages exist even if the caller's clock stands
 * still.
 */
const REQUEST_US = 1_000;
/** Microseconds between two passes over the ages of leaves. */
const AGING_US = 250_000;

export class Hazard implements EvictionPolicy {
  readonly #world: EvictionWorld;
  readonly #estimates: Estimates = new Estimates();
  readonly #cohorts: Cohorts = new Cohorts(this.#estimates);
  readonly #guard: Guard;
  readonly #visits: Visits = new Visits();
  readonly #returns: Returns;
  readonly #blocks: HazardBlocks;
  readonly #candidates: Candidates;
  /** Row of the visit that uses a content plus 1, or 0, by content; and whether it was new to that visit. */
  readonly #inUse: Int32Array;
  readonly #isNew: Uint8Array;
  #blocksInUse = 0;
  /** Contents in use or entered: the size of the cache, copies of one content counted once. */
  #present = 0;
  /** Blocks that LRU would hold of the cohort at its end. */
  #lruRoom = 0;
  #requests = 0;
  #nowUs = 0;
  #agedUs = 0;
  /** The visit that touched last. */
  #visit = 0;
  #row = -1;
  /** Class and pace of the block classified last, with its visit, part and uses; any touch clears them. */
  #classRow = -1;
  #classKind = 0;
  #class = 0;
  #pace = 0;

  constructor(world: EvictionWorld, guardShare: number) {
    this.#world = world;
    this.#guard = new Guard(guardShare);
    this.#returns = new Returns(this.#cohorts, this.#guard, this.#visits);
    this.#blocks = new HazardBlocks(world, this.#cohorts);
    this.#candidates = new Candidates(world, this.#estimates, this.#blocks);
    this.#inUse = new Int32Array(world.contents);
    this.#isNew = new Uint8Array(world.contents);
  }

  begin(visit: Visit): void {
    this.#returns.flush();
    this.#cohorts.close();
    this.#requests++;
    this.#nowUs = this.#clock();
    this.#cohorts.mature(this.#nowUs);
    this.#lruRoom = this.#cohorts.holdAtMost(this.#present - this.#blocksInUse);
    this.#guard.begin(visit.blocks, visit.matched, this.#present, this.#cohorts.returns);
    this.#candidates.asLru = this.#guard.asLru;
    if (this.#nowUs - this.#agedUs >= AGING_US) {
      this.#agedUs = this.#nowUs;
      this.#candidates.leaves.age(this.#nowUs);
    }
    const n = this.#requests;
    if (n % REFIT_REQUESTS === 0 || (n < REFIT_REQUESTS && (n & (n - 1)) === 0)) {
      this.#estimates.refit();
      this.#candidates.leaves.rerank();
    }
  }

  touch(content: number, visit: Visit): void {
    const row = visit.number === this.#visit && this.#row !== -1 ? this.#row : this.#rowOf(visit);
    const { known, uses, cohort } = this.#blocks;
    const visits = this.#visits;
    const isKnown = known[content] === 1 || this.#blocks.recall(content, this.#nowUs);
    const before = this.#inUse[content] - 1;
    if (before !== -1) {
      visits.hold(row);
      visits.letGo(before);
      if (visits.lruFinds[row] === 1) this.#guard.lruFound(1);
    } else {
      visits.hold(row);
      if (!this.#candidates.has(content)) this.#present++;
      this.#blocksInUse++;
      this.#isNew[content] = isKnown ? 0 : 1;
      this.#returns.add(row, cohort[content], this.#nowUs);
      cohort[content] = 0;
    }
    this.#inUse[content] = row + 1;
    visits.last[row] = content;
    if (isKnown) visits.knows(row, uses[content], this.#blocks.pace[content], this.#blocks.usedUs[content]);
    else visits.newTokens[row] += this.#world.tokens[content];
    if (uses[content] < 255) uses[content]++;
    this.#classRow = -1;
  }

  enter(replica: number, tier: number, sizeClass: number, content: number): void {
    this.#nowUs = this.#clock();
    this.#returns.flush();
    if (this.#inUse[content] === 0 && !this.#candidates.has(content)) this.#present++;
    if (this.#inUse[content] > 0) this.#classify(content);
    else if (this.#blocks.known[content] === 0) this.#blocks.recall(content, this.#nowUs);
    this.#candidates.enter(replica, tier, sizeClass, content, this.#nowUs);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    const content = this.#candidates.leave(replica, tier, sizeClass, this.#nowUs);
    if (this.#inUse[content] === 0 && !this.#candidates.has(content)) this.#present--;
  }

  victim(tier: number): number {
    return this.#candidates.next(tier);
  }

  victimOfClass(tier: number, sizeClass: number): number {
    return this.#candidates.nextOfClass(tier, sizeClass);
  }

  upcoming(tier: number, count: number): number[] {
    return this.#candidates.upcoming(tier, count);
  }

  forgotten(content: number): void {
    this.#returns.flush();
    this.#cohorts.close();
    this.#candidates.childCounts.forgotten(content);
    const row = this.#inUse[content] - 1;
    if (row !== -1) {
      this.#inUse[content] = 0;
      this.#blocksInUse--;
      this.#present--;
      this.#letGo(row);
    }
    if (this.#blocks.known[content] === 1) this.#blocks.bury(content);
  }

  dump(tier: number): number[] {
    return this.#candidates.members(tier);
  }

  #letGo(row: number): void {
    this.#visits.letGo(row);
    if (row === this.#row && this.#visits.find(this.#visit) === -1) this.#row = -1;
  }

  #rowOf(visit: Visit): number {
    this.#returns.flush();
    this.#visit = visit.number;
    const row = this.#visits.find(visit.number);
    this.#row = row === -1 ? this.#visits.begin(visit.number, this.#nowUs, this.#lruRoom) : row;
    return this.#row;
  }

  /**
   * The manager's time plus `REQUEST_US` for each request, so that ages exist even if the caller's clock stands
   * still.
   */
  #clock(): number {
    return this.#world.nowUs() + this.#requests * REQUEST_US;
  }

  /** The content was released after a request: it gets its class and cohort, and its other copies with it. */
  #classify(content: number): void {
    const row = this.#inUse[content] - 1;
    const visits = this.#visits;
    const { uses } = this.#blocks;
    const isLast = visits.last[row] === content;
    const part = isLast ? ClassPart.LAST : this.#isNew[content] === 1 ? ClassPart.NEW : ClassPart.KNOWN;
    const kind = part * 256 + uses[content];
    if (row !== this.#classRow || kind !== this.#classKind) {
      this.#classRow = row;
      this.#classKind = kind;
      this.#pace = visits.paceOf(row);
      this.#class = classOf(part, uses[content], this.#pace, visits.newTokens[row]);
      this.#estimates.use(this.#class);
    }
    const c = this.#class;
    const pace = this.#pace;
    this.#blocks.class[content] = c;
    this.#blocks.pace[content] = pace;
    this.#blocks.usedUs[content] = this.#nowUs;
    this.#blocks.cohort[content] = this.#cohorts.join(c, visits.number[row], this.#nowUs);
    this.#inUse[content] = 0;
    this.#blocksInUse--;
    this.#letGo(row);
    this.#candidates.replace(content, this.#nowUs);
  }

  visitState(visitor: StateVisitor): void {
    this.#estimates.visitState(visitor);
    this.#cohorts.visitState(visitor);
    this.#guard.visitState(visitor);
    this.#visits.visitState(visitor);
    this.#blocks.visitState(visitor);
    this.#candidates.visitState(visitor);
    this.#returns.visitState(visitor);
    visitor.array(this.#inUse);
    visitor.array(this.#isNew);
    this.#blocksInUse = visitor.number(this.#blocksInUse);
    this.#present = visitor.number(this.#present);
    this.#lruRoom = visitor.number(this.#lruRoom);
    this.#requests = visitor.number(this.#requests);
    this.#nowUs = visitor.number(this.#nowUs);
    this.#agedUs = visitor.number(this.#agedUs);
    this.#visit = visitor.number(this.#visit);
    this.#row = visitor.number(this.#row);
    this.#classRow = visitor.number(this.#classRow);
    this.#classKind = visitor.number(this.#classKind);
    this.#class = visitor.number(this.#class);
    this.#pace = visitor.number(this.#pace);
  }

  checkIntegrity(): void {
    this.#candidates.checkIntegrity();
    this.#blocks.checkIntegrity(this.#returns.cohort, this.#returns.length);
    const inUse = new Map<number, number>();
    let count = 0;
    let present = 0;
    for (const [content, visit] of this.#inUse.entries()) {
      if (visit !== 0 || this.#candidates.has(content)) present++;
      if (visit === 0) continue;
      inUse.set(visit - 1, (inUse.get(visit - 1) ?? 0) + 1);
      count++;
    }
    invariant(count === this.#blocksInUse, 'blocks in use are counted');
    invariant(present === this.#present, 'contents that are in use or have entered are counted');
    this.#visits.checkIntegrity(inUse);
  }
}
