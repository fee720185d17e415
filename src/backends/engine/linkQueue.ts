/**
 * The queue of one link: jobs that wait for it, and the bytes that are under way on it. A waiting job holds
 * no memory. Jobs begin in batches, the most urgent first, as soon as the link's window has room:
 *
 *     +----------------------- window ------------------------+
 *     | under way, any priority            | demand loads only |
 *     +------------------------------------+-------------------+
 *
 * The last quarter of the window is kept for demand loads, so they never wait behind write-backs. Two jobs
 * may always be under way, however large they are, so that the link stays busy while one of them ends. A job
 * whose deadline passes before it begins is ended unbegun. A batch past its deadline no longer counts against
 * the window, so a store that never answers cannot block its link.
 */

import { JobPriority } from '../../runtime/index.ts';
import type { Transfer } from '../../runtime/tables/jobTable.ts';

export interface LinkLimits {
  /** Most bytes under way. Two jobs may be under way even if they are larger. */
  readonly windowBytes: number;
  /** Most bytes in one batch. A single job may be larger. */
  readonly batchBytes: number;
}

export interface LinkJob {
  readonly transfer: Transfer;
}

interface QueuedFlight {
  readonly bytes: number;
  readonly dueUs: number;
  counted: boolean;
}

/** Share of the window that only demand loads may use. */
const DEMAND_SHARE = 1 / 4;

export class LinkQueue<Job extends LinkJob> {
  readonly #limits: LinkLimits;
  readonly #nowUs: () => number;
  readonly #begin: (batch: readonly Job[]) => Promise<void>;
  readonly #expired: (job: Job) => void;
  readonly #waiting: Job[][] = Object.values(JobPriority).map(() => []);
  readonly #heads: Uint32Array = new Uint32Array(this.#waiting.length);
  readonly #flights: Set<QueuedFlight> = new Set();
  #bytesUnderWay = 0;
  #pumping = false;

  /**
   * @param begin carries out a batch; must not reject
   * @param expired ends a job whose deadline passed before it began
   */
  constructor(
    limits: LinkLimits,
    nowUs: () => number,
    begin: (batch: readonly Job[]) => Promise<void>,
    expired: (job: Job) => void,
  ) {
    this.#limits = limits;
    this.#nowUs = nowUs;
    this.#begin = begin;
    this.#expired = expired;
  }

  /** Bytes of jobs that have begun and count against the window. */
  get bytesUnderWay(): number {
    return this.#bytesUnderWay;
  }

  /** Jobs that have not begun. */
  get waiting(): number {
    return this.#waiting.reduce((sum, list, priority) => sum + list.length - this.#heads[priority], 0);
  }

  push(job: Job): void {
    this.#waiting[job.transfer.priority].push(job);
  }

  /** Begins the jobs that the window has room for. Call it after `push`. */
  pump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    this.#pumpOne();
  }

  /** Begins one batch a microtask, so that its store starts work before the next batch is assembled. */
  #pumpOne(): void {
    const batch = this.#nextBatch();
    this.#pumping = batch.length > 0;
    if (!this.#pumping) return;
    const flight = this.#enter(batch);
    void this.#begin(batch).then(() => {
      this.#uncount(flight);
      this.pump();
    });
    queueMicrotask(() => this.#pumpOne());
  }

  /** Ends waiting jobs past their deadline, and frees the window of batches past theirs. */
  expire(nowUs: number): void {
    for (const flight of this.#flights) if (flight.dueUs <= nowUs) this.#uncount(flight);
    this.#waiting.forEach((list, priority) => {
      const due = (job: Job): boolean => job.transfer.deadlineUs <= nowUs;
      const left = list.slice(this.#heads[priority]);
      this.#heads[priority] = 0;
      this.#waiting[priority] = left.filter((job) => !due(job));
      for (const job of left) if (due(job)) this.#expired(job);
    });
    this.pump();
  }

  #nextBatch(): Job[] {
    const { windowBytes, batchBytes } = this.#limits;
    const batch: Job[] = [];
    const nowUs = this.#nowUs();
    let bytes = 0;
    for (let priority = 0; priority < this.#waiting.length; priority++) {
      const room = priority === JobPriority.DEMAND_LOAD ? windowBytes : windowBytes * (1 - DEMAND_SHARE);
      for (let job = this.#peek(priority); job !== undefined; job = this.#peek(priority)) {
        const size = job.transfer.bytes;
        if (this.#bytesUnderWay + bytes + size > Math.max(room, 2 * size)) break;
        if (batch.length > 0 && bytes + size > batchBytes) return batch;
        this.#shift(priority);
        if (job.transfer.deadlineUs <= nowUs) {
          this.#expired(job);
          continue;
        }
        batch.push(job);
        bytes += size;
      }
    }
    return batch;
  }

  #enter(batch: readonly Job[]): QueuedFlight {
    let bytes = 0;
    let dueUs = 0;
    for (const { transfer } of batch) {
      bytes += transfer.bytes;
      dueUs = Math.max(dueUs, transfer.deadlineUs);
    }
    const flight: QueuedFlight = { bytes, dueUs, counted: true };
    this.#flights.add(flight);
    this.#bytesUnderWay += bytes;
    return flight;
  }

  #uncount(flight: QueuedFlight): void {
    if (flight.counted) this.#bytesUnderWay -= flight.bytes;
    flight.counted = false;
    this.#flights.delete(flight);
  }

  #peek(priority: number): Job | undefined {
    return this.#waiting[priority][this.#heads[priority]];
  }

  #shift(priority: number): void {
    const list = this.#waiting[priority];
    const head = ++this.#heads[priority];
    if (head < list.length) return;
    list.length = 0;
    this.#heads[priority] = 0;
  }
}

// ---- traffic: the bytes that each link carried, and the time in which it was busy

export interface LinkTraffic {
  readonly bytes: number;
  /** Seconds in which at least one transfer was under way on the link. */
  readonly busySeconds: number;
}

export class LinkMeter {
  readonly #clock: () => number;
  readonly #links: Map<string, { bytes: number; busyMs: number; active: number; sinceMs: number }> =
    new Map();

  constructor(clockMs: () => number) {
    this.#clock = clockMs;
  }

  begin(link: string): void {
    let state = this.#links.get(link);
    if (state === undefined) {
      state = { bytes: 0, busyMs: 0, active: 0, sinceMs: 0 };
      this.#links.set(link, state);
    }
    if (state.active++ === 0) state.sinceMs = this.#clock();
  }

  end(link: string, bytes: number): void {
    const state = this.#links.get(link)!;
    state.bytes += bytes;
    if (--state.active === 0) state.busyMs += this.#clock() - state.sinceMs;
  }

  traffic(): Map<string, LinkTraffic> {
    return new Map(
      [...this.#links].map(([link, { bytes, busyMs }]) => [link, { bytes, busySeconds: busyMs / 1000 }]),
    );
  }
}
