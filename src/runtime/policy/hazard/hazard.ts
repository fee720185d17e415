/**
 * tierkv's own eviction policy. Every use of a chain teaches it how soon blocks of a kind return; the block
 * whose expected returns per time of holding are lowest goes first. Only blocks that no cached block follows
 * are considered, so prefixes stay whole. A guard sees to it that it is not worse than LRU for long.
 *
 *     touch --> in use --(let go: enter)--> class, cohort, cell --(evicted)--> ghost --(touch)--> in use
 *
 * Ages count from the moment at which a block was let go. Equal calls give equal decisions.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import type { EvictionPolicy, PolicyWorld, Visit } from '../evictionPolicy.ts';
import { Family } from '../parts/index.ts';
import { Blocks } from './blocks.ts';
import { classOf, Part } from './classes.ts';
import { Cohorts } from './cohorts.ts';
import { Estimates } from './estimates.ts';
import { Guard } from './guard.ts';
import { Leaves } from './leaves.ts';
import { Visits } from './visits.ts';

/** Requests between two refits, once there were as many. */
const REFIT_REQUESTS = 64;
/** What a request adds to the policy's clock. */
const REQUEST_US = 1_000;
/** Time after which ages are looked at again. */
const AGING_US = 250_000;

export class Hazard implements EvictionPolicy {
  readonly #world: PolicyWorld;
  readonly #sizeClasses: number;
  readonly #estimates: Estimates = new Estimates();
  readonly #cohorts: Cohorts = new Cohorts(this.#estimates);
  readonly #guard: Guard;
  readonly #visits: Visits = new Visits();
  readonly #blocks: Blocks;
  readonly #family: Family;
  readonly #leaves: Leaves;
  /** By content: row of the visit that uses it plus 1, or 0; and whether it was new to that visit. */
  readonly #inUse: Int32Array;
  readonly #isNew: Uint8Array;
  /** By replica: tier times the number of size classes, plus its size class. */
  readonly #group: Uint16Array;
  #blocksInUse = 0;
  /** Contents that are in use or have entered: what the cache holds, copies of one content counted once. */
  #present = 0;
  /** Blocks of the cohort at its end that an LRU would hold. */
  #lruRoom = 0;
  #requests = 0;
  #nowUs = 0;
  #agedUs = 0;
  /** The visit that touched last. */
  #visit = 0;
  #row = -1;
  /** Blocks of one cohort that were touched one after the other, not yet counted as returned. */
  #runCohort = 0;
  #runRow = 0;
  #runUs = 0;
  #runLength = 0;
  /**
   * Class and pace of the block that was classified last, and of which visit, part and uses they are; any
   * touch ends that.
   */
  #classRow = -1;
  #classKind = 0;
  #class = 0;
  #pace = 0;

  constructor(world: PolicyWorld, guardShare: number) {
    this.#world = world;
    this.#sizeClasses = world.unitBytes.length;
    this.#guard = new Guard(guardShare);
    this.#blocks = new Blocks(world, this.#cohorts);
    this.#family = new Family(world);
    this.#leaves = new Leaves(world, this.#estimates.worth);
    this.#inUse = new Int32Array(world.contents);
    this.#isNew = new Uint8Array(world.contents);
    this.#group = new Uint16Array(world.base[world.tiers]);
  }

  begin(visit: Visit): void {
    this.#flush();
    this.#cohorts.close();
    this.#requests++;
    this.#nowUs = this.#clock();
    this.#cohorts.mature(this.#nowUs);
    this.#lruRoom = this.#cohorts.holdAtMost(this.#present - this.#blocksInUse);
    this.#guard.begin(visit.blocks, visit.matched, this.#present, this.#cohorts.returns);
    this.#leaves.keepsOrder = this.#guard.asLru;
    if (this.#nowUs - this.#agedUs >= AGING_US) {
      this.#agedUs = this.#nowUs;
      this.#leaves.age(this.#nowUs);
    }
    const n = this.#requests;
    if (n % REFIT_REQUESTS === 0 || (n < REFIT_REQUESTS && (n & (n - 1)) === 0)) {
      this.#estimates.refit();
      this.#leaves.rerank();
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
      if (this.#family.firstOf(content) === -1) this.#present++;
      this.#blocksInUse++;
      this.#isNew[content] = isKnown ? 0 : 1;
      this.#countReturn(row, cohort[content]);
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
    this.#flush();
    const family = this.#family;
    if (this.#inUse[content] === 0 && family.firstOf(content) === -1) this.#present++;
    if (this.#inUse[content] > 0) this.#classify(content);
    else if (this.#blocks.known[content] === 0) this.#blocks.recall(content, this.#nowUs);
    const parent = family.enter(replica, tier, content, this.#world.parentOf(content));
    const group = tier * this.#sizeClasses + sizeClass;
    this.#group[replica] = group;
    if (family.hasChildren(content, tier)) this.#leaves.addInner(group, replica);
    else this.#addLeaf(replica, group, content, false);
    if (parent !== -1) this.#becomeInner(parent, tier);
  }

  leave(replica: number, tier: number, sizeClass: number): void {
    this.#leaves.remove(tier * this.#sizeClasses + sizeClass, replica);
    const content = this.#family.contentOf(replica);
    const parent = this.#family.leave(replica, tier);
    if (this.#inUse[content] === 0 && this.#family.firstOf(content) === -1) this.#present--;
    if (parent !== -1) this.#becomeLeaf(parent, tier);
  }

  victim(tier: number): number {
    const first = tier * this.#sizeClasses;
    if (this.#sizeClasses === 1) return this.#best(first);
    let best = -1;
    let inner = -1;
    for (let c = 0; c < this.#sizeClasses; c++) {
      const candidate = this.#best(first + c);
      if (candidate === -1) continue;
      if (!this.#leaves.isLeaf(candidate)) inner = candidate;
      else if (best === -1 || this.#goesBefore(candidate, c, best)) best = candidate;
    }
    return best === -1 ? inner : best;
  }

  /**
   * Leaves, each with the blocks before it that were let go at the same moment: they follow once it is gone.
   * As an LRU, and among several size classes, of the next leaf only.
   */
  upcoming(tier: number, count: number): number[] {
    const first = this.victim(tier);
    if (first === -1) return [];
    const alone = this.#guard.asLru || this.#sizeClasses > 1;
    const next = new Set<number>();
    for (const leaf of alone ? [first] : this.#leaves.leastFew(tier, count)) {
      let content = this.#family.contentOf(leaf);
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

  /** The content's entered replica in the tier, or -1. */
  #copyIn(content: number, tier: number): number {
    const { base } = this.#world;
    let at = this.#family.firstOf(content);
    while (at !== -1 && (at < base[tier] || at >= base[tier + 1])) at = this.#family.nextOf(at);
    return at;
  }

  victimOfClass(tier: number, sizeClass: number): number {
    return this.#best(tier * this.#sizeClasses + sizeClass);
  }

  forgotten(content: number): void {
    this.#flush();
    this.#cohorts.close();
    this.#family.forgotten(content);
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
    const all: number[] = [];
    for (let c = 0; c < this.#sizeClasses; c++) {
      all.push(...this.#leaves.members(tier * this.#sizeClasses + c));
    }
    return all;
  }

  #letGo(row: number): void {
    this.#visits.letGo(row);
    if (row === this.#row && this.#visits.find(this.#visit) === -1) this.#row = -1;
  }

  #rowOf(visit: Visit): number {
    this.#flush();
    this.#visit = visit.number;
    const row = this.#visits.find(visit.number);
    this.#row = row === -1 ? this.#visits.begin(visit.number, this.#nowUs, this.#lruRoom) : row;
    return this.#row;
  }

  /**
   * The manager's time, and a little more with each request, so that ages exist even where the caller's clock
   * stands still.
   */
  #clock(): number {
    return this.#world.nowUs() + this.#requests * REQUEST_US;
  }

  #countReturn(row: number, cohort: number): void {
    if (cohort !== this.#runCohort || row !== this.#runRow || this.#runLength === 0) {
      this.#flush();
      this.#runCohort = cohort;
      this.#runRow = row;
      this.#runUs = this.#nowUs;
    }
    this.#runLength++;
  }

  #flush(): void {
    if (this.#runLength === 0) return;
    const length = this.#runLength;
    const cohort = this.#runCohort;
    const row = this.#runRow;
    const visits = this.#visits;
    this.#runLength = 0;
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
    this.#cohorts.returned(cohort, length, this.#runUs);
  }

  /**
   * The content was let go after a request: it gets its class and its cohort, and its other copies with it.
   */
  #classify(content: number): void {
    const row = this.#inUse[content] - 1;
    const visits = this.#visits;
    const { uses } = this.#blocks;
    const isLast = visits.last[row] === content;
    const part = isLast ? Part.LAST : this.#isNew[content] === 1 ? Part.NEW : Part.KNOWN;
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
    for (let at = this.#family.firstOf(content); at !== -1; at = this.#family.nextOf(at))
      this.#replace(at, content);
  }

  #replace(replica: number, content: number): void {
    if (!this.#leaves.isLeaf(replica)) return;
    const group = this.#group[replica];
    this.#leaves.remove(group, replica);
    this.#addLeaf(replica, group, content, false);
  }

  #addLeaf(replica: number, group: number, content: number, revealed: boolean): void {
    const c = this.#blocks.class[content];
    this.#estimates.use(c);
    this.#leaves.addLeaf(group, replica, c, this.#blocks.usedUs[content], this.#nowUs, revealed);
  }

  #becomeInner(content: number, tier: number): void {
    const { base } = this.#world;
    for (let at = this.#family.firstOf(content); at !== -1; at = this.#family.nextOf(at)) {
      if (at < base[tier] || at >= base[tier + 1] || !this.#leaves.isLeaf(at)) continue;
      const group = this.#group[at];
      this.#leaves.remove(group, at);
      this.#leaves.addInner(group, at);
    }
  }

  #becomeLeaf(content: number, tier: number): void {
    const { base } = this.#world;
    for (let at = this.#family.firstOf(content); at !== -1; at = this.#family.nextOf(at)) {
      if (at < base[tier] || at >= base[tier + 1]) continue;
      const group = this.#group[at];
      this.#leaves.remove(group, at);
      this.#addLeaf(at, group, content, true);
    }
  }

  #best(group: number): number {
    const leaf = this.#guard.asLru ? this.#leaves.oldest(group) : this.#leaves.least(group);
    return leaf === -1 ? this.#leaves.inner(group) : leaf;
  }

  /** Whether a leaf of size class `c` goes before the best leaf of the classes before. */
  #goesBefore(leaf: number, c: number, best: number): boolean {
    if (this.#guard.asLru) return this.#leaves.usedUs(leaf) < this.#leaves.usedUs(best);
    const { unitBytes } = this.#world;
    const bestBytes = unitBytes[this.#group[best] % this.#sizeClasses];
    return this.#leaves.worthOf(leaf) * bestBytes < this.#leaves.worthOf(best) * unitBytes[c];
  }

  visitState(visitor: StateVisitor): void {
    this.#estimates.visitState(visitor);
    this.#cohorts.visitState(visitor);
    this.#guard.visitState(visitor);
    this.#visits.visitState(visitor);
    this.#blocks.visitState(visitor);
    this.#family.visitState(visitor);
    this.#leaves.visitState(visitor);
    visitor.array(this.#inUse);
    visitor.array(this.#isNew);
    visitor.array(this.#group);
    this.#blocksInUse = visitor.number(this.#blocksInUse);
    this.#present = visitor.number(this.#present);
    this.#lruRoom = visitor.number(this.#lruRoom);
    this.#requests = visitor.number(this.#requests);
    this.#nowUs = visitor.number(this.#nowUs);
    this.#agedUs = visitor.number(this.#agedUs);
    this.#visit = visitor.number(this.#visit);
    this.#row = visitor.number(this.#row);
    this.#runCohort = visitor.number(this.#runCohort);
    this.#runRow = visitor.number(this.#runRow);
    this.#runUs = visitor.number(this.#runUs);
    this.#runLength = visitor.number(this.#runLength);
    this.#classRow = visitor.number(this.#classRow);
    this.#classKind = visitor.number(this.#classKind);
    this.#class = visitor.number(this.#class);
    this.#pace = visitor.number(this.#pace);
  }

  checkIntegrity(): void {
    this.#leaves.checkIntegrity();
    this.#blocks.checkIntegrity(this.#runCohort, this.#runLength);
    const { tiers, base } = this.#world;
    this.#family.checkIntegrity((replica) => {
      let tier = 0;
      while (tier + 1 < tiers && replica >= base[tier + 1]) tier++;
      return tier;
    });
    const inUse = new Map<number, number>();
    let count = 0;
    let present = 0;
    for (const [content, visit] of this.#inUse.entries()) {
      if (visit !== 0 || this.#family.firstOf(content) !== -1) present++;
      if (visit === 0) continue;
      inUse.set(visit - 1, (inUse.get(visit - 1) ?? 0) + 1);
      count++;
    }
    invariant(count === this.#blocksInUse, 'blocks in use are counted');
    invariant(present === this.#present, 'contents that are in use or have entered are counted');
    this.#visits.checkIntegrity(inUse);
  }
}
