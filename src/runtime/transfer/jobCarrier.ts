/**
 * Carries jobs from the manager to a driver and their ends back: the one loop between the two, in servers,
 * simulators, replays and tests. The manager says when it has issued jobs, the driver when one has ended;
 * nothing here waits or polls.
 *
 *     manager --jobs--> carrier --submit--> driver
 *        ^                                    |
 *        +----------complete--- carrier <--onEnd
 */

import type { Completion, TransferDriver } from './driver.ts';
import type { JobId } from './jobTable.ts';
import type { Outcome } from './outcome.ts';
import type { Transfer } from './transfer.ts';

/** What the carrier needs of a manager. */
export interface JobSource {
  nextJob(): JobId;
  transfer(job: JobId): Transfer;
  complete(job: JobId, outcome: Outcome, nowUs: number, digestLo?: number, digestHi?: number): void;
}

export class JobCarrier {
  readonly #jobs: JobSource;
  readonly #driver: TransferDriver;
  #held = false;

  constructor(jobs: JobSource, driver: TransferDriver) {
    this.#jobs = jobs;
    this.#driver = driver;
    driver.onEnd((end) => this.complete(end));
  }

  /** Submits what the manager has issued. The manager's listener calls it (`jobsIssued`). */
  submit(): void {
    if (this.#held) return;
    const transfers: Transfer[] = [];
    for (let job = this.#jobs.nextJob(); job !== 0; job = this.#jobs.nextJob()) {
      transfers.push(this.#jobs.transfer(job));
    }
    if (transfers.length > 0) this.#driver.submit(transfers);
  }

  /**
   * Keeps what the manager issues until `resume`, as long as there is no store to submit it to. Ends are
   * still carried back.
   */
  hold(): void {
    this.#held = true;
  }

  resume(): void {
    this.#held = false;
    this.submit();
  }

  /**
   * Tells the manager of an end. For drivers whose ends somebody else puts in order; others report by
   * themselves.
   */
  complete({ job, outcome, digestLo, digestHi }: Completion): void {
    this.#jobs.complete(job, outcome, this.#driver.nowUs(), digestLo, digestHi);
  }
}
