/**
 * Runs the I/Os of a store: a queue with a bounded number in flight, deadlines for other I/Os, scratch
 * and memory. Waiting I/Os begin first in, first out. Reads and writes have queues of
 * their own and begin in turn, so a read never waits behind many writes.
 *
 * The deadline of an I/O counts from its beginning, in time in which the process ran. An I/O past its
 * deadline is reported, and still holds its memory until it retires, since it may still touch memory and
 * disk. While every I/O in flight is past its deadline nothing can move, so waiting I/Os are given up instead
 * of hanging.
 */

import { invariant } from '../../runtime/errors.ts';
import { HostArena } from '../host/hostArena.ts';
import { runningClock, TICK_MS } from '../runningClock.ts';
import { BLOCK_BYTES, type DataFile, IoError } from './dataFile.ts';

export type IoKind = 'read' | 'write';

export interface QueuedIo {
  readonly kind: IoKind;
  /** Begins the I/O. @returns its end, which never rejects; undefined if no staging memory is free yet */
  begin(): Promise<void> | undefined;
  /** The deadline has passed and the I/O has not retired. */
  overdue(): void;
  /** The I/O will not begin: every I/O in flight is stuck, or the store closes. */
  giveUp(why: 'stuck' | 'closed'): void;
}

export class IoQueue {
  readonly #depth: number;
  readonly #deadlineMs: number;
  /** In order of arrival, which a Set keeps. */
  readonly #waiting: Record<IoKind, Set<QueuedIo>> = { read: new Set(), write: new Set() };
  /** When each I/O in flight is due, oldest first; Infinity once it was reported as overdue. */
  readonly #inFlight: Map<QueuedIo, number> = new Map();
  #lastBegun: IoKind = 'write';
  #overdue = 0;
  #stopAlarm: (() => void) | undefined;

  constructor(depth: number, deadlineMs: number) {
    this.#depth = depth;
    this.#deadlineMs = deadlineMs;
  }

  /** I/Os in flight past their deadline. */
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
      this.#inFlight.set(io, runningClock.nowMs() + this.#deadlineMs);
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

  /** Keeps one alarm, for the earliest deadline in flight; no alarm if no I/O can become late. */
  #watch(): void {
    if (this.#inFlight.size === this.#overdue) {
      this.#stopAlarm?.();
      this.#stopAlarm = undefined;
    }
    if (this.#stopAlarm !== undefined || this.#inFlight.size === this.#overdue) return;
    let soonestMs = Number.POSITIVE_INFINITY;
    for (const dueMs of this.#inFlight.values()) soonestMs = Math.min(soonestMs, dueMs);
    this.#stopAlarm = runningClock.alarm(soonestMs - runningClock.nowMs(), () => this.#report());
  }

  #report(): void {
    this.#stopAlarm = undefined;
    const nowMs = runningClock.nowMs();
    for (const [io, dueMs] of this.#inFlight) {
      if (dueMs - nowMs >= TICK_MS) continue;
      this.#inFlight.set(io, Number.POSITIVE_INFINITY);
      this.#overdue += 1;
      io.overdue();
    }
    this.#beginWaiting();
  }
}

// ---- deadlines for I/Os outside the queue: marks, durability points, checkpoints

/** Counts the I/Os past their deadline until they retire. A write that waits for one goes on without it. */
export class IoWatch {
  readonly #deadlineMs: number;
  #overdue = 0;

  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs;
  }

  /** I/Os past their deadline that have not retired. */
  get overdue(): number {
    return this.#overdue;
  }

  /** The file, with its writes and syncs watched. */
  wrap(file: DataFile): DataFile {
    return {
      readv: (parts, at) => file.readv(parts, at),
      writev: (parts, at) => this.#track(file.writev(parts, at)),
      allocate: (at, bytes) => file.allocate(at, bytes),
      sync: () => this.#track(file.sync()),
      close: () => file.close(),
    };
  }

  /** Ends as `io` does, or rejects with ETIMEDOUT at the deadline while `io` goes on. */
  within(io: Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = runningClock.alarm(this.#deadlineMs, () => reject(new IoError('ETIMEDOUT', 'index')));
      io.then(resolve, reject).finally(stop);
    });
  }

  #track(io: Promise<void>): Promise<void> {
    let late = false;
    const stop = runningClock.alarm(this.#deadlineMs, () => {
      late = true;
      this.#overdue++;
    });
    return io.finally(() => {
      stop();
      if (late) this.#overdue--;
    });
  }
}

// ---- scratch memory

interface MemoryRange {
  start: number;
  end: number;
}

/**
 * Page-aligned memory for I/Os in flight: for record headers, and for records whose bytes direct I/O cannot
 * reach where they are. A fixed arena, given out first fit. If no range is free the I/O waits until one is
 * given back.
 */
export class StagingPool implements Disposable {
  readonly capacityBytes: number;
  readonly #arena: HostArena;
  /** Free ranges by address. Neighbouring ranges are merged. */
  readonly #free: MemoryRange[];

  private constructor(arena: HostArena, capacityBytes: number) {
    this.#arena = arena;
    this.capacityBytes = capacityBytes;
    this.#free = [{ start: 0, end: capacityBytes }];
  }

  static async open(capacityBytes: number, native: boolean): Promise<StagingPool> {
    invariant(capacityBytes % BLOCK_BYTES === 0, 'a staging pool must be whole blocks');
    const arena = await HostArena.open({
      chunkBytes: [capacityBytes],
      resident: false,
      native,
      field: 'queueDepth',
    });
    return new StagingPool(arena, capacityBytes);
  }

  /** A range of `bytes`, rounded up to whole blocks; undefined if no free range is long enough. */
  take(bytes: number): Uint8Array | undefined {
    const length = Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
    invariant(length > 0 && length <= this.capacityBytes, () => `staging for ${bytes} bytes`);
    const at = this.#free.findIndex((range) => range.end - range.start >= length);
    if (at < 0) return undefined;
    const range = this.#free[at];
    const taken = new Uint8Array(this.#arena.chunks[0], range.start, length);
    range.start += length;
    if (range.start === range.end) this.#free.splice(at, 1);
    return taken;
  }

  give(taken: Uint8Array): void {
    const start = taken.byteOffset;
    const end = start + taken.byteLength;
    let at = 0;
    while (at < this.#free.length && this.#free[at].start < start) at++;
    const before = this.#free[at - 1];
    const after = this.#free[at];
    invariant(
      (before?.end ?? 0) <= start && end <= (after?.start ?? this.capacityBytes),
      'staging given back twice',
    );
    const joinsBefore = before?.end === start;
    const joinsAfter = after?.start === end;
    if (joinsBefore && joinsAfter) {
      before.end = after.end;
      this.#free.splice(at, 1);
    } else if (joinsBefore) before.end = end;
    else if (joinsAfter) after.start = start;
    else this.#free.splice(at, 0, { start, end });
  }

  /** @throws an invariant unless every range was given back */
  checkIntegrity(): void {
    const [only] = this.#free;
    const whole = this.#free.length === 1 && only.start === 0 && only.end === this.capacityBytes;
    invariant(whole, 'staging memory is still in use');
  }

  [Symbol.dispose](): void {
    this.#arena[Symbol.dispose]();
  }
}
