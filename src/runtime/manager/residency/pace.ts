/**
 * How long blocks of one tier take on their way down: a running mean over those that have arrived, and the
 * age of the oldest that has not. A tier whose blocks take long is bounded more tightly (residency.ts), so
 * that nobody waits for slots that leave slowly. A way that nobody has gone yet counts as slow, and that from
 * HBM as fast.
 */

import type { StateVisitor } from '../../snapshot/index.ts';
import { JobQueue } from '../../transfer/jobQueue.ts';
import type { JobId, JobTable } from '../../transfer/jobTable.ts';

/** Blocks that take longer than this hold up requests that wait for their slots. */
export const SLOW_US = 50_000;
/** Share of the newest sample in the mean. */
const WEIGHT = 1 / 8;

export class Pace {
  readonly #jobs: JobTable;
  /**
   * Jobs under way in the order in which they were made; those that ended leave when they come to the front.
   */
  readonly #underWay: JobQueue = new JobQueue();
  #meanUs: number;

  /** @param tier position of the tier whose blocks leave, 0 for HBM */
  constructor(tier: number, jobs: JobTable) {
    this.#jobs = jobs;
    this.#meanUs = tier === 0 ? 0 : Number.POSITIVE_INFINITY;
  }

  began(job: JobId): void {
    this.#underWay.push(job);
  }

  ended(durationUs: number): void {
    this.#meanUs =
      this.#meanUs === Number.POSITIVE_INFINITY
        ? durationUs
        : this.#meanUs * (1 - WEIGHT) + durationUs * WEIGHT;
  }

  isSlow(nowUs: number): boolean {
    let oldest = this.#underWay.peek();
    while (oldest !== 0 && !this.#jobs.isLive(oldest)) {
      this.#underWay.shift();
      oldest = this.#underWay.peek();
    }
    const ageUs = oldest === 0 ? 0 : nowUs - this.#jobs.madeAtUs[this.#jobs.rowOf(oldest)];
    return Math.max(this.#meanUs, ageUs) > SLOW_US;
  }

  visitState(visitor: StateVisitor): void {
    this.#underWay.visitState(visitor);
    this.#meanUs = visitor.number(this.#meanUs);
  }
}
