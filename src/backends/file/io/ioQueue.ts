/**
 * A bounded number of I/Os in flight and the rest waiting, first in, first out, with a deadline on each I/O
 * from the moment it begins, in time in which the process ran. Reads and writes wait apart and begin in turn, so that a read never waits behind
 * a queue of writes.
 *
 * An I/O past its deadline is reported and waited for: it may still touch memory and disk, so nothing that it
 * holds is free before it retires. While every I/O in flight is past its deadline, nothing can move, and
 * those that wait are given up instead of waiting for ever.
 */

import { type RunningClock, runningClock, TICK_MS } from '../../runningClock.ts';

export type IoKind = 'read' | 'write';

export interface QueuedIo {
  readonly kind: IoKind;
  /** Begins and returns the end, which never rejects; undefined while there is no memory for it. */
  begin(): Promise<void> | undefined;
  /** The deadline has passed and the I/O has not retired. */
  overdue(): void;
  /** It will not begin, since nothing in flight ends or since the store closes. */
  giveUp(why: 'stuck' | 'closed'): void;
}

export class IoQueue {
  readonly #depth: number;
  readonly #deadlineMs: number;
  /** Sets keep the order in which their members came. */
  readonly #waiting: Record<IoKind, Set<QueuedIo>> = { read: new Set(), write: new Set() };
  /** When each I/O in flight is due, oldest first; Infinity once it was reported as overdue. */
  readonly #inFlight: Map<QueuedIo, number> = new Map();
  #lastBegun: IoKind = 'write';
  #overdue = 0;
  readonly #clock: RunningClock;
  #stopAlarm: (() => void) | undefined;

  constructor(depth: number, deadlineMs: number, clock: RunningClock = runningClock) {
    this.#depth = depth;
    this.#deadlineMs = deadlineMs;
    this.#clock = clock;
  }

  /** I/Os that are past their deadline and have not retired. */
  get overdue(): number {
    return this.#overdue;
  }

  push(io: QueuedIo): void {
    this.#waiting[io.kind].add(io);
    this.#beginWaiting();
  }

  /** Gives up everything that has not begun. */
  giveUpWaiting(why: 'stuck' | 'closed'): void {
    const { read, write } = this.#waiting;
    const waiting = [...read, ...write];
    read.clear();
    write.clear();
    for (const io of waiting) io.giveUp(why);
  }

  #beginWaiting(): void {
    while (this.#inFlight.size < this.#depth) {
      const io = this.#next();
      if (io === undefined) break;
      const end = io.begin();
      if (end === undefined) break;
      this.#waiting[io.kind].delete(io);
      this.#lastBegun = io.kind;
      this.#inFlight.set(io, this.#clock.nowMs() + this.#deadlineMs);
      void end.then(() => this.#retire(io));
    }
    if (this.#inFlight.size > 0 && this.#overdue === this.#inFlight.size) this.giveUpWaiting('stuck');
    this.#watch();
  }

  /** The oldest I/O of the kind that did not begin last, if one waits; else the oldest of the other kind. */
  #next(): QueuedIo | undefined {
    const { read, write } = this.#waiting;
    const [first, second] = this.#lastBegun === 'read' ? [write, read] : [read, write];
    for (const io of first) return io;
    for (const io of second) return io;
    return undefined;
  }

  #retire(io: QueuedIo): void {
    if (this.#inFlight.get(io) === Number.POSITIVE_INFINITY) this.#overdue -= 1;
    this.#inFlight.delete(io);
    this.#beginWaiting();
  }

  /** Keeps one alarm, for the I/O in flight that is due first, and none while none can be late. */
  #watch(): void {
    if (this.#inFlight.size === this.#overdue) {
      this.#stopAlarm?.();
      this.#stopAlarm = undefined;
    }
    if (this.#stopAlarm !== undefined || this.#inFlight.size === this.#overdue) return;
    let soonestMs = Number.POSITIVE_INFINITY;
    for (const dueMs of this.#inFlight.values()) soonestMs = Math.min(soonestMs, dueMs);
    this.#stopAlarm = this.#clock.alarm(soonestMs - this.#clock.nowMs(), () => this.#report());
  }

  #report(): void {
    this.#stopAlarm = undefined;
    const nowMs = this.#clock.nowMs();
    for (const [io, dueMs] of this.#inFlight) {
      if (dueMs - nowMs >= TICK_MS) continue;
      this.#inFlight.set(io, Number.POSITIVE_INFINITY);
      this.#overdue += 1;
      io.overdue();
    }
    this.#beginWaiting();
  }
}
