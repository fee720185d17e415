/**
 * A driver for a manager without bytes: every job has ended as loaded when `run` returns, and a sealed block
 * has no digest.
 */

import type { EndListener, TransferDriver } from '../transfer/driver.ts';
import { JobQueue } from '../transfer/jobQueue.ts';
import type { JobId } from '../transfer/jobTable.ts';
import { Outcome } from '../transfer/outcome.ts';
import type { Transfer } from '../transfer/transfer.ts';

export class ImmediateDriver implements TransferDriver {
  readonly #nowUs: () => number;
  readonly #jobs: JobQueue = new JobQueue();
  #listener: EndListener = () => {};

  constructor(nowUs: () => number) {
    this.#nowUs = nowUs;
  }

  nowUs(): number {
    return this.#nowUs();
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(transfers: readonly Transfer[]): void {
    for (const { job } of transfers) this.#jobs.push(job);
  }

  /** Ends jobs in the order in which they were submitted, those that follow from them included. */
  run(): void {
    for (let job: JobId = this.#jobs.shift(); job !== 0; job = this.#jobs.shift()) {
      this.#listener({ job, outcome: Outcome.LOADED, digestLo: 0, digestHi: 0, reason: '' });
    }
  }
}
