/**
 * How soon blocks return, learnt by class and idle age. This file owns the buckets of age, the tree of classes, the
 * cohorts that are counted and the estimates made of them.
 *
 * Idle ages fall in buckets of half octaves from half a second, so that 32 of them reach four and a half hours. The
 * bounds are literals, since `Math.pow` may differ between engines.
 *
 *     bucket      0        1          2         ...   31
 *     age    0 -- 500 ms -- 707 ms -- 1 s -- ...  -- 3 h -- ...
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot.ts';

export const BUCKETS = 32;

/** First age of each bucket in microseconds, and last the age at which the outlook ends. */
export const bucketStartUs: Float64Array = Float64Array.from([
  0, 500e3, 707_107, 1e6, 1_414_214, 2e6, 2_828_427, 4e6, 5_656_854, 8e6, 11_313_709, 16e6, 22_627_417, 32e6,
  45_254_834, 64e6, 90_509_668, 128e6, 181_019_336, 256e6, 362_038_672, 512e6, 724_077_344, 1024e6,
  1_448_154_688, 2048e6, 2_896_309_376, 4096e6, 5_792_618_751, 8192e6, 11_585_237_503, 16_384e6,
  23_170_475_006,
]);

/** @returns the bucket of an age in microseconds */
export function bucketOf(ageUs: number): number {
  let low = 0;
  let high = BUCKETS;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (ageUs >= bucketStartUs[middle]) low = middle;
    else high = middle;
  }
  return low;
}

// Blocks that are alike share a class, and a class learns how soon its blocks return. Classes form a tree, so that a
// class with little data of its own leans on its parent:
//
//     root -> part of the request -> uses of the block -> pace of its chain -> new tokens of the request
//        1               3                   18                 144                   864 classes
//        1               3                   18                 144                   864 classes

export const CLASSES = 864;
const NODES = 1030;
/** Node of class 0. A parent's number is lower than its children's. */
const FIRST_CLASS_NODE: number = NODES - CLASSES;

/** Which part of its last request a block was. */
export const ClassPart = { LAST: 0, NEW: 1, KNOWN: 2 } as const;
export type ClassPart = (typeof ClassPart)[keyof typeof ClassPart];

const USES = 6;
const PACES = 8;
const NEW_TOKENS = 6;

/**
 * @param uses requests that used the block
 * @param pace 0 for none, else the mean bucket of the chain's gaps, plus 1, times 8
 * @param newTokens tokens of the request that were not known
 */
export function classOf(part: ClassPart, uses: number, pace: number, newTokens: number): number {
  return ((part * USES + usesLevel(uses)) * PACES + paceLevel(pace)) * NEW_TOKENS + newLevel(newTokens);
}

function usesLevel(uses: number): number {
  return uses < 3 ? (uses < 2 ? 0 : 1) : uses < 5 ? 2 : uses < 9 ? 3 : uses < 33 ? 4 : 5;
}

function paceLevel(pace: number): number {
  return pace === 0 ? 0 : Math.min(7, 1 + (pace >> 5));
}

function newLevel(tokens: number): number {
  return tokens < 513
    ? tokens < 65
      ? 0
      : 1
    : tokens < 2049
      ? 2
      : tokens < 8193
        ? 3
        : tokens < 32_769
          ? 4
          : 5;
}

/** Parent of each node; the root is its own. */
const parentNode: Uint16Array = makeParents();

function makeParents(): Uint16Array {
  const parents = new Uint16Array(NODES);
  const widths = [1, 3, USES, PACES, NEW_TOKENS];
  let firstParent = 0;
  let first = 1;
  let count = 1;
  for (const width of widths.slice(1)) {
    for (let i = 0; i < count * width; i++) parents[first + i] = firstParent + Math.floor(i / width);
    firstParent = first;
    count *= width;
    first += count;
  }
  return parents;
}

// Blocks of one request and one class that were released together are a cohort. A cohort weighs 1 in all, however
// many its blocks, so that one long request does not drown many short ones. It counts its blocks that have neither
// returned nor been forgotten. Cohorts are numbered from 1 in order of time; the latest are kept in a ring.
//
// The order of cohorts is also the order of LRU, so an LRU of the same size needs no books of its own: it holds all
// blocks of the latest cohorts, as far back as they fit.

const LIMIT = 2 ** 16;
/** Cohorts after which half of what was counted is forgotten. */
const MEMORY = 32_768;

export class Cohorts {
  readonly #estimates: Estimates;
  #size = 256;
  #timeUs: Float64Array = new Float64Array(this.#size);
  #class: Uint16Array = new Uint16Array(this.#size);
  #open: Int32Array = new Int32Array(this.#size);
  #weight: Float64Array = new Float64Array(this.#size);
  #newest = 0;
  /** Whether the newest cohort may still get blocks, and of which request. */
  #gathering = false;
  #visit = 0;
  /** The first cohort that has not reached a bucket yet, by bucket. */
  readonly #unreached: Float64Array = new Float64Array(BUCKETS).fill(1);
  #seen = 0;
  #returns = 0;
  /** First cohort that LRU would hold whole, and the open blocks from it on. */
  #firstHeld = 1;
  #held = 0;

  constructor(estimates: Estimates) {
    this.#estimates = estimates;
  }

  get newest(): number {
    return this.#newest;
  }

  /** Returns seen; a whole cohort counts as one. */
  get returns(): number {
    return this.#returns;
  }

  /** Adds a released block of the request `visit`. @returns its cohort */
  join(c: number, visit: number, nowUs: number): number {
    const at = this.#newest % this.#size;
    if (!this.#gathering || this.#visit !== visit || this.#class[at] !== c || this.#timeUs[at] !== nowUs) {
      this.close();
      this.#begin(c, visit, nowUs);
    }
    this.#open[this.#newest % this.#size]++;
    this.#held++;
    return this.#newest;
  }

  /** Completes the newest cohort. */
  close(): void {
    if (!this.#gathering) return;
    const at = this.#newest % this.#size;
    this.#weight[at] = 1 / this.#open[at];
    this.#gathering = false;
  }

  #begin(c: number, visit: number, nowUs: number): void {
    const next = this.#newest + 1;
    if (next > this.#size && this.#size < LIMIT) this.#grow();
    const oldest = next - this.#size;
    if (oldest >= this.#firstHeld) {
      this.#held -= this.#open[oldest % this.#size];
      this.#firstHeld = oldest + 1;
    }
    this.#newest = next;
    const at = next % this.#size;
    this.#class[at] = c;
    this.#timeUs[at] = nowUs;
    this.#open[at] = 0;
    this.#gathering = true;
    this.#visit = visit;
  }

  /** `blocks` of the cohort were used again. */
  returned(cohort: number, blocks: number, nowUs: number): void {
    if (!this.#keeps(cohort)) return;
    const at = cohort % this.#size;
    const bucket = bucketOf(nowUs - this.#timeUs[at]);
    this.#estimates.addReturns(this.#class[at], bucket, blocks * this.#weight[at]);
    this.#returns += blocks * this.#weight[at];
    this.#take(cohort, blocks);
  }

  /** A block of the cohort was forgotten: its return can no longer be seen. */
  forgotten(cohort: number): void {
    if (this.#keeps(cohort)) this.#take(cohort, 1);
  }

  #take(cohort: number, blocks: number): void {
    this.#open[cohort % this.#size] -= blocks;
    if (cohort >= this.#firstHeld) this.#held -= blocks;
  }

  #keeps(cohort: number): boolean {
    return cohort > 0 && cohort > this.#newest - this.#size;
  }

  /**
   * Counts every cohort that has reached a further bucket as exposed there. Call it before returns at `nowUs` are
   * counted.
   */
  mature(nowUs: number): void {
    for (let b = 0; b < BUCKETS; b++) {
      let next = Math.max(this.#unreached[b], this.#newest - this.#size + 1);
      while (next <= this.#newest && nowUs - this.#timeUs[next % this.#size] >= bucketStartUs[b]) {
        const at = next % this.#size;
        if (this.#open[at] > 0) {
          this.#estimates.addExposures(this.#class[at], b, this.#open[at] * this.#weight[at]);
        }
        if (b === 0) this.#seen++;
        next++;
      }
      this.#unreached[b] = next;
    }
    if (this.#seen > MEMORY) {
      this.#seen >>= 1;
      this.#estimates.halve();
    }
  }

  /** @returns blocks of cohort `firstHeld - 1` that an LRU of `blocks` would hold beside all later cohorts */
  holdAtMost(blocks: number): number {
    while (this.#held > blocks && this.#firstHeld <= this.#newest) {
      this.#held -= this.#open[this.#firstHeld++ % this.#size];
    }
    return blocks - this.#held;
  }

  /** The first cohort that an LRU would hold whole. */
  get firstHeld(): number {
    return this.#firstHeld;
  }

  #grow(): void {
    const before = this.#size;
    const size = before * 2;
    const moved = <T extends Float64Array | Uint16Array | Int32Array>(from: T, into: T): T => {
      for (let c = Math.max(1, this.#newest - before + 1); c <= this.#newest; c++) {
        into[c % size] = from[c % before];
      }
      return into;
    };
    this.#timeUs = moved(this.#timeUs, new Float64Array(size));
    this.#class = moved(this.#class, new Uint16Array(size));
    this.#open = moved(this.#open, new Int32Array(size));
    this.#weight = moved(this.#weight, new Float64Array(size));
    this.#size = size;
  }

  visitState(visitor: StateVisitor): void {
    this.#timeUs = visitor.growing(this.#timeUs);
    this.#class = visitor.growing(this.#class);
    this.#open = visitor.growing(this.#open);
    this.#weight = visitor.growing(this.#weight);
    this.#size = visitor.number(this.#size);
    this.#newest = visitor.number(this.#newest);
    this.#gathering = visitor.flag(this.#gathering);
    this.#visit = visitor.number(this.#visit);
    visitor.array(this.#unreached);
    this.#seen = visitor.number(this.#seen);
    this.#returns = visitor.number(this.#returns);
    this.#firstHeld = visitor.number(this.#firstHeld);
    this.#held = visitor.number(this.#held);
  }

  /** @param members blocks, cached or ghosts, by cohort */
  checkIntegrity(members: ReadonlyMap<number, number>): void {
    let held = 0;
    for (let c = Math.max(1, this.#newest - this.#size + 1); c <= this.#newest; c++) {
      const open = this.#open[c % this.#size];
      invariant(open === (members.get(c) ?? 0), 'a cohort counts the blocks that name it');
      if (c >= this.#firstHeld) held += open;
    }
    invariant(held === this.#held, 'the shadow LRU counts the blocks of its cohorts');
  }
}

// The estimates: how likely a return is, by class and idle age, and what keeping a block is worth. Each node of the
// class tree counts returns and exposures by bucket (a discrete-time survival estimate, as in Cox and Oakes, Analysis
// of Survival Data, 1984), drawn towards its parent where its own counts are small. A class's worth at an age is the
// Gittins index: the best ratio, over all ages to give up at, of the chance of a return to the time of holding.
//
// Only + - * / and comparisons are used, so every engine gives the same numbers.

/** Pseudo-exposures that draw a bucket towards its parent's hazard. */
const BUCKET_WEIGHT = 10;
/** Pseudo-returns that draw a node's level towards its parent's. */
const LEVEL_WEIGHT = 3;
/** Chance of a return per bucket before anything was seen, and its weight in exposures. */
const PRIOR = 0.01;
const PRIOR_WEIGHT = 4;
const HIGHEST_HAZARD = 0.95;

export class Estimates {
  /**
   * Worth of a block by class and bucket, at `class * BUCKETS + bucket`: expected returns per microsecond of holding.
   */
  readonly worth: Float64Array = new Float64Array(CLASSES * BUCKETS);
  /** Counts by node and bucket. Classes are counted at once, the nodes above them at each refit. */
  readonly #returns: Float64Array = new Float64Array(NODES * BUCKETS);
  readonly #exposures: Float64Array = new Float64Array(NODES * BUCKETS);
  readonly #hazard: Float64Array = new Float64Array(NODES * BUCKETS);
  readonly #used: Uint8Array = new Uint8Array(NODES);
  readonly #stackReturn: Float64Array = new Float64Array(BUCKETS);
  readonly #stackTime: Float64Array = new Float64Array(BUCKETS);
  readonly #stackStay: Float64Array = new Float64Array(BUCKETS);

  /** Makes sure that the class has a worth. */
  use(c: number): void {
    if (this.#used[FIRST_CLASS_NODE + c] === 0) this.#use(FIRST_CLASS_NODE + c);
  }

  addReturns(c: number, bucket: number, weight: number): void {
    this.#returns[(FIRST_CLASS_NODE + c) * BUCKETS + bucket] += weight;
  }

  addExposures(c: number, bucket: number, weight: number): void {
    this.#exposures[(FIRST_CLASS_NODE + c) * BUCKETS + bucket] += weight;
  }

  /** Halves all counts, so that newer ones weigh more. */
  halve(): void {
    for (let i = 0; i < this.#returns.length; i++) {
      this.#returns[i] *= 0.5;
      this.#exposures[i] *= 0.5;
    }
  }

  /** Takes into account what was counted since the last refit. */
  refit(): void {
    this.#returns.fill(0, 0, FIRST_CLASS_NODE * BUCKETS);
    this.#exposures.fill(0, 0, FIRST_CLASS_NODE * BUCKETS);
    for (let node = NODES - 1; node > 0; node--) if (this.#used[node] === 1) this.#sumUp(node);
    for (let node = 0; node < NODES; node++) if (this.#used[node] === 1) this.#refitNode(node);
  }

  #sumUp(node: number): void {
    const own = node * BUCKETS;
    const parent = parentNode[node] * BUCKETS;
    for (let b = 0; b < BUCKETS; b++) {
      this.#returns[parent + b] += this.#returns[own + b];
      this.#exposures[parent + b] += this.#exposures[own + b];
    }
  }

  #use(node: number): void {
    const parent = parentNode[node];
    if (node !== 0 && this.#used[parent] === 0) this.#use(parent);
    this.#used[node] = 1;
    this.#refitNode(node);
  }

  #refitNode(node: number): void {
    const returns = this.#returns;
    const exposures = this.#exposures;
    const hazard = this.#hazard;
    const own = node * BUCKETS;
    if (node === 0) {
      for (let b = 0; b < BUCKETS; b++) {
        hazard[b] = (returns[b] + PRIOR_WEIGHT * PRIOR) / (exposures[b] + PRIOR_WEIGHT);
      }
      return;
    }
    const parent = parentNode[node] * BUCKETS;
    let seen = LEVEL_WEIGHT;
    let expected = LEVEL_WEIGHT;
    for (let b = 0; b < BUCKETS; b++) {
      seen += returns[own + b];
      expected += exposures[own + b] * hazard[parent + b];
    }
    const level = seen / expected;
    for (let b = 0; b < BUCKETS; b++) {
      const drawn = Math.min(HIGHEST_HAZARD, level * hazard[parent + b]);
      hazard[own + b] = (returns[own + b] + BUCKET_WEIGHT * drawn) / (exposures[own + b] + BUCKET_WEIGHT);
    }
    if (node >= FIRST_CLASS_NODE) this.#rate(node - FIRST_CLASS_NODE);
  }

  /**
   * The Gittins index of every bucket of a class, from the oldest back. A bucket joins the later ones while they are
   * worth more than it, which gives the best age to give up at in one pass.
   */
  #rate(c: number): void {
    const hazard = this.#hazard;
    const own = (FIRST_CLASS_NODE + c) * BUCKETS;
    const returned = this.#stackReturn;
    const held = this.#stackTime;
    const stays = this.#stackStay;
    let depth = 0;
    for (let b = BUCKETS - 1; b >= 0; b--) {
      const p = hazard[own + b];
      let r = p;
      let t = (bucketStartUs[b + 1] - bucketStartUs[b]) * (1 - p / 2);
      let stay = 1 - p;
      while (depth > 0 && returned[depth - 1] * t > r * held[depth - 1]) {
        depth--;
        r += stay * returned[depth];
        t += stay * held[depth];
        stay *= stays[depth];
      }
      returned[depth] = r;
      held[depth] = t;
      stays[depth++] = stay;
      this.worth[c * BUCKETS + b] = r / t;
    }
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.worth);
    visitor.array(this.#returns);
    visitor.array(this.#exposures);
    visitor.array(this.#hazard);
    visitor.array(this.#used);
  }
}
