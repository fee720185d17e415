/**
 * A bounded number of I/Os in flight, the rest in a queue, first in first out, and a deadline on each job from the moment it
 * begins. A job of many I/Os has a lane for each that is in flight; whenever there is room for one more, the oldest job that
 * has use for it gets it, so that long ones end one after the other and the next begins before the disk has nothing to do.
 *
 * A job past its deadline is reported and waited for: it may still touch memory and disk, so nothing that it holds is free
 * before it retires. While every job in flight is past its deadline nothing can move, and queued ones are given up at once
 * instead of waiting for ever.
 */

export interface IoJob {
  /**
   * Begins the job with one lane and returns its end, which never rejects; or undefined when it must wait for staging memory.
   * @param laneEnded to be called when a lane has no more to do
   */
  begin(laneEnded: () => void): Promise<void> | undefined;
  /** One more I/O at once. False where the job has no use for it. */
  widen(): boolean;
  /** The deadline has passed and the I/O has not retired. */
  overdue(): void;
  /** It will not begin, since nothing in flight ends or since the queue is closed. */
  giveUp(why: 'stuck' | 'closed'): void;
}

interface Flight {
  /** Infinity once it was reported that it has passed. */
  dueMs: number;
  lanes: number;
}

export class IoQueue {
  readonly #depth: number;
  readonly #deadlineMs: number;
  #waiting: IoJob[] = [];
  #head = 0;
  /** Oldest first. */
  readonly #flights: Map<IoJob, Flight> = new Map();
  #inFlight = 0;
  #overdue = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(depth: number, deadlineMs: number) {
    this.#depth = depth;
    this.#deadlineMs = deadlineMs;
  }

  /** Lanes of the jobs under way. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Jobs that are past their deadline and have not retired. */
  get overdue(): number {
    return this.#overdue;
  }

  push(job: IoJob): void {
    this.#waiting.push(job);
    this.#pump();
  }

  /** Gives up everything that has not begun. */
  giveUpWaiting(why: 'stuck' | 'closed'): void {
    const waiting = this.#waiting.slice(this.#head);
    this.#waiting = [];
    this.#head = 0;
    for (const job of waiting) job.giveUp(why);
  }

  #pump(): void {
    for (const [job, flight] of this.#flights) {
      if (this.#inFlight >= this.#depth) break;
      this.#widen(job, flight);
    }
    while (this.#head < this.#waiting.length && this.#inFlight < this.#depth) {
      const job = this.#waiting[this.#head];
      const flight: Flight = { dueMs: performance.now() + this.#deadlineMs, lanes: 1 };
      const end = job.begin(() => this.#laneEnded(flight));
      if (end === undefined) break;
      this.#head += 1;
      this.#inFlight += 1;
      this.#flights.set(job, flight);
      this.#widen(job, flight);
      void end.then(() => this.#retire(job, flight));
    }
    if (this.#head === this.#waiting.length) {
      this.#waiting = [];
      this.#head = 0;
    } else if (this.#flights.size > 0 && this.#overdue === this.#flights.size) this.giveUpWaiting('stuck');
    this.#watch();
  }

  #widen(job: IoJob, flight: Flight): void {
    while (this.#inFlight < this.#depth && job.widen()) {
      flight.lanes += 1;
      this.#inFlight += 1;
    }
  }

  #laneEnded(flight: Flight): void {
    if (flight.lanes <= 1) return; // the last lane counts until the job ends
    flight.lanes -= 1;
    this.#inFlight -= 1;
    this.#pump();
  }

  #retire(job: IoJob, flight: Flight): void {
    if (flight.dueMs === Number.POSITIVE_INFINITY) this.#overdue -= 1;
    this.#flights.delete(job);
    this.#inFlight -= flight.lanes;
    this.#pump();
  }

  /** Keeps one timer, for the oldest I/O that is not overdue yet. */
  #watch(): void {
    if (this.#timer !== undefined || this.#flights.size === this.#overdue) return;
    let soonestMs = Number.POSITIVE_INFINITY;
    for (const { dueMs } of this.#flights.values()) soonestMs = Math.min(soonestMs, dueMs);
    this.#timer = setTimeout(() => this.#report(), Math.max(1, soonestMs - performance.now()));
    this.#timer.unref();
  }

  #report(): void {
    this.#timer = undefined;
    const nowMs = performance.now();
    for (const [job, flight] of this.#flights) {
      if (flight.dueMs > nowMs) continue;
      flight.dueMs = Number.POSITIVE_INFINITY;
      this.#overdue += 1;
      job.overdue();
    }
    this.#pump();
  }
}
