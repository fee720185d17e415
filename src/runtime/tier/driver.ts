/**
 * The contract of a driver, which executes the manager's jobs, for real (`TransferEngine` in tierkv/backends) or on a
 * virtual clock (`ModeledDriver` in tierkv/sim), and the carrier between the two. A driver decides nothing. It
 * reports each end when it happens, in any order; a slow write to disk delays only its own waiters.
 */

import type { StateVisitor } from '../snapshot.ts';
import type { JobId, Transfer } from '../tables/jobTable.ts';
import type { Outcome } from './tier.ts';

/** How one job ended. Its slots belong to the manager again. */
export interface Completion {
  readonly job: JobId;
  readonly outcome: Outcome;
  /** Digest of the sealed bytes; 0 for other kinds. */
  readonly digestLo: number;
  readonly digestHi: number;
  /** Why it was not loaded, for humans. */
  readonly reason: string;
}

export type EndListener = (end: Completion) => void;

export interface TransferDriver {
  /** The driver's clock, in integer microseconds; never goes back. */
  nowUs(): number;
  /** Takes over jobs; returns at once. Each job ends once, even if its deadline has passed. */
  submit(transfers: readonly Transfer[]): void;
  /**
   * Sets the listener of ends. The driver calls it from outside `submit`; a later listener replaces the earlier one.
   */
  onEnd(listener: EndListener): void;
}

// Carries jobs from the manager to a driver and their ends back: the one loop between the two, in servers,
// simulators, replays and tests. The manager says when it has issued jobs, the driver when one has ended;
// nothing here waits or polls.
//
//     manager --jobs--> carrier --submit--> driver
//        ^                                    |
//        +----------complete--- carrier <--onEnd

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
   * Keeps the manager's jobs until `resume`, while no store can take them. Ends are still carried back.
   */
  hold(): void {
    this.#held = true;
  }

  resume(): void {
    this.#held = false;
    this.submit();
  }

  /**
   * Tells the manager of an end. For drivers whose caller puts the ends in order; other drivers report by themselves.
   */
  complete({ job, outcome, digestLo, digestHi }: Completion): void {
    this.#jobs.complete(job, outcome, this.#driver.nowUs(), digestLo, digestHi);
  }
}

//  A first-in first-out ring of job ids that grows and never shrinks.

export class JobQueue {
  #ring: Float64Array = new Float64Array(64);
  #head = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(job: JobId): void {
    if (this.#size === this.#ring.length) {
      const ring = new Float64Array(this.#size * 2);
      for (let i = 0; i < this.#size; i++) ring[i] = this.#ring[(this.#head + i) & (this.#size - 1)];
      this.#ring = ring;
      this.#head = 0;
    }
    this.#ring[(this.#head + this.#size++) & (this.#ring.length - 1)] = job;
  }

  /** The jobs in order. */
  toArray(): JobId[] {
    return Array.from(
      { length: this.#size },
      (_, i) => this.#ring[(this.#head + i) & (this.#ring.length - 1)] as JobId,
    );
  }

  /** The first job, or 0 if the queue is empty. */
  peek(): JobId {
    return (this.#size === 0 ? 0 : this.#ring[this.#head]) as JobId;
  }

  shift(): JobId {
    const job = this.peek();
    if (this.#size > 0) {
      this.#head = (this.#head + 1) & (this.#ring.length - 1);
      this.#size--;
    }
    return job;
  }

  visitState(visitor: StateVisitor): void {
    this.#ring = visitor.growing(this.#ring);
    this.#head = visitor.number(this.#head);
    this.#size = visitor.number(this.#size);
  }
}
