/**
 * A bounded number of I/Os in flight, the rest in a queue, first in first out, and a deadline on each from the moment it
 * begins. An I/O past its deadline is reported and waited for: it may still touch memory and disk, so nothing that it holds
 * is free before it retires. While every I/O in flight is past its deadline nothing can move, and queued ones are given
 * up at once instead of waiting for ever.
 */

export interface IoJob {
  /** How many I/Os it has in flight at once. One with many begins as soon as there is room for one. */
  readonly ios: number;
  /** Begins the I/O and returns its end, which never rejects; or undefined when it must wait for staging memory. */
  begin(): Promise<void> | undefined;
  /** The deadline has passed and the I/O has not retired. */
  overdue(): void;
  /** It will not begin, since nothing in flight ends or since the queue is closed. */
  giveUp(why: 'stuck' | 'closed'): void;
}

export class IoQueue {
  readonly #depth: number;
  readonly #deadlineMs: number;
  #waiting: IoJob[] = [];
  #head = 0;
  /** Time at which each job in flight is due, oldest first; infinity once that was reported. */
  readonly #dueMs: Map<IoJob, number> = new Map();
  #inFlight = 0;
  #overdue = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(depth: number, deadlineMs: number) {
    this.#depth = depth;
    this.#deadlineMs = deadlineMs;
  }

  /** I/Os that the jobs under way may have in flight. */
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
    while (this.#head < this.#waiting.length && this.#inFlight < this.#depth) {
      const job = this.#waiting[this.#head]!;
      const end = job.begin();
      if (end === undefined) break;
      this.#head += 1;
      this.#inFlight += job.ios;
      this.#dueMs.set(job, performance.now() + this.#deadlineMs);
      void end.then(() => this.#retire(job));
    }
    if (this.#head === this.#waiting.length) {
      this.#waiting = [];
      this.#head = 0;
    } else if (this.#dueMs.size > 0 && this.#overdue === this.#dueMs.size) this.giveUpWaiting('stuck');
    this.#watch();
  }

  #retire(job: IoJob): void {
    if (this.#dueMs.get(job) === Number.POSITIVE_INFINITY) this.#overdue -= 1;
    this.#dueMs.delete(job);
    this.#inFlight -= job.ios;
    this.#pump();
  }

  /** Keeps one timer, for the oldest I/O that is not overdue yet. */
  #watch(): void {
    if (this.#timer !== undefined || this.#dueMs.size === this.#overdue) return;
    const soonestMs = Math.min(...this.#dueMs.values());
    this.#timer = setTimeout(() => this.#report(), Math.max(1, soonestMs - performance.now()));
    this.#timer.unref();
  }

  #report(): void {
    this.#timer = undefined;
    const nowMs = performance.now();
    for (const [job, dueMs] of this.#dueMs) {
      if (dueMs > nowMs) continue;
      this.#dueMs.set(job, Number.POSITIVE_INFINITY);
      this.#overdue += 1;
      job.overdue();
    }
    this.#pump();
  }
}
