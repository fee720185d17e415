/**
 * Deadlines for I/Os outside the queue: marks, durability points, checkpoints. One past its deadline is
 * counted until it retires; who waits for it to write a record is told to go on without.
 */

import { type RunningClock, runningClock } from '../../runningClock.ts';
import { type DataFile, IoError } from './dataFile.ts';

export class IoWatch {
  readonly #deadlineMs: number;
  readonly #clock: RunningClock;
  #overdue = 0;

  constructor(deadlineMs: number, clock: RunningClock = runningClock) {
    this.#deadlineMs = deadlineMs;
    this.#clock = clock;
  }

  /** I/Os that are past their deadline and have not retired. */
  get overdue(): number {
    return this.#overdue;
  }

  /** The file, with its writes and syncs under watch. */
  wrap(file: DataFile): DataFile {
    return {
      readv: (parts, at) => file.readv(parts, at),
      writev: (parts, at) => this.#track(file.writev(parts, at)),
      allocate: (at, bytes) => file.allocate(at, bytes),
      sync: () => this.#track(file.sync()),
      close: () => file.close(),
    };
  }

  /** Ends as the I/O does, or at the deadline as ETIMEDOUT; then the I/O goes on by itself. */
  within(io: Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = this.#clock.alarm(this.#deadlineMs, () => reject(new IoError('ETIMEDOUT', 'index')));
      io.then(resolve, reject).finally(stop);
    });
  }

  #track(io: Promise<void>): Promise<void> {
    let late = false;
    const stop = this.#clock.alarm(this.#deadlineMs, () => {
      late = true;
      this.#overdue++;
    });
    return io.finally(() => {
      stop();
      if (late) this.#overdue--;
    });
  }
}
