/**
 * Blocks of one request and one class that were let go together are a cohort: they weigh 1 in all, however
 * many they are, so that one long request does not drown what many short ones say. A cohort knows how many of
 * its blocks have neither returned nor been forgotten. Cohorts are numbered from 1 in order of time; the
 * latest ones are kept in a ring.
 *
 * The order of cohorts is also the order of an LRU, so an LRU of the same size needs no bookkeeping of its
 * own: it holds all blocks of the latest cohorts, as far back as they fit.
 */

import { invariant } from '../../../errors.ts';
import type { StateVisitor } from '../../../snapshot/index.ts';
import { BUCKETS, bucketOf, bucketStartUs } from './ages.ts';
import type { Estimates } from './estimates.ts';

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
  /** By bucket, the first cohort that has not reached it yet. */
  readonly #unreached: Float64Array = new Float64Array(BUCKETS).fill(1);
  #seen = 0;
  #returns = 0;
  /** First cohort that an LRU would hold whole, and the open blocks from it on. */
  #firstHeld = 1;
  #held = 0;

  constructor(estimates: Estimates) {
    this.#estimates = estimates;
  }

  get newest(): number {
    return this.#newest;
  }

  /** Returns that were seen, a whole cohort counting as one. */
  get returns(): number {
    return this.#returns;
  }

  /** One more block of the request `visit` was let go. @returns its cohort */
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

  /** The newest cohort is complete. */
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

  /** A block of the cohort was forgotten: whether it returns will not be seen. */
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
   * Counts every cohort that has come to a further bucket as exposed there. Call it before returns at `nowUs`
   * are counted.
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

  /**
   * @returns blocks of cohort `firstHeld - 1` that an LRU of `blocks` would hold beside all of the later
   * cohorts
   */
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
