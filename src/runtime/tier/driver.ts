/**
 * The contract of a driver, which executes the manager's jobs, and the carrier between the two. There is one contract
 * for all drivers: `TransferEngine` moves bytes, `ModeledDriver` replays a real run on a virtual clock,
 * `InstanceDriver` serves the instances of a simulation. A driver decides nothing. It reports each end when it
 * happens, in any order; a slow write to disk delays only its own waiters.
 */

import * as is from '../kinds.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { JobId, JobRoute, Transfer } from '../tables/jobTable.ts';
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

/** Jobs that wait for a driver, in the order in which they were issued. */
export interface IssuedJobs {
  /** Takes the next job; 0 when none waits. */
  nextJob(): JobId;
  /** All of a job, for a driver that moves its bytes. */
  transfer(job: JobId): Transfer;
  /** Fills `into` with what a model of links asks of a job; makes no object. */
  route(job: JobId, into: JobRoute): void;
}

/** Carries out transfers, and reports how each ended. It decides nothing. */
export interface TransferDriver {
  /** The driver's clock, in integer microseconds; never goes back. */
  nowUs(): number;
  /** Takes over all jobs that wait; returns at once. Each job ends once, even if its deadline has passed. */
  submit(jobs: IssuedJobs): void;
  /**
   * Sets the listener of ends; a later listener replaces the earlier one. The driver calls it between calls of the
   * manager: never from inside a `submit` that the manager's own listener makes. Only a simulation, which submits
   * when a call is over, may have ends from inside `submit`.
   */
  onEnd(listener: EndListener): void;
}

/** Jobs of a caller without a manager, such as a bench. Each transfer is taken once, in order. */
export function issuedJobs(transfers: readonly Transfer[]): IssuedJobs {
  const byJob = new Map(transfers.map((transfer) => [transfer.job, transfer]));
  const transfer = (job: JobId): Transfer => byJob.get(job) as Transfer;
  let next = 0;
  return {
    nextJob: () => (next < transfers.length ? transfers[next++].job : 0) as JobId,
    transfer,
    route(job, into): void {
      const { source, target, bytes, key } = transfer(job);
      into.from = source?.tier ?? null;
      into.to = target.tier;
      into.bytes = bytes;
      into.keys = key;
      into.keyAt = 0;
    },
  };
}

// Carries jobs from the manager to a driver and their ends back: the one loop between the two, in servers,
// simulators, replays and tests. The manager says when it has issued jobs, the driver when one has ended;
// nothing here waits or polls.
//
//     manager --jobs--> carrier --submit--> driver
//        ^                                    |
//        +----------complete--- carrier <--onEnd

/** The part of a manager that the carrier needs. */
interface JobSource extends IssuedJobs {
  complete(job: JobId, outcome: Outcome, nowUs: number, digestLo?: number, digestHi?: number): void;
}

/** Takes the jobs of a manager to its driver, and the ends back. */
export class JobCarrier {
  readonly #jobs: JobSource;
  readonly #driver: TransferDriver;
  #held = false;

  constructor(jobs: JobSource, driver: TransferDriver) {
    is.fields({ nextJob: is.func(), complete: is.func() }).read(jobs, 'jobs');
    is.fields({ submit: is.func(), onEnd: is.func() }).read(driver, 'driver');
    this.#jobs = jobs;
    this.#driver = driver;
    driver.onEnd((end) => this.complete(end));
  }

  /**
   * Submits what the manager has issued. The manager's listener calls it (`jobsIssued`), or a simulation after each
   * call of the manager.
   */
  submit(): void {
    if (!this.#held) this.#driver.submit(this.#jobs);
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
