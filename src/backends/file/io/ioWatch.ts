/**
 * Deadlines for I/Os outside the queue: marks, durability points, checkpoints. One past its deadline is
 * counted until it retires; who waits for it to write a record is told to go on without.
 */

import { type DataFile, IoError } from './dataFile.ts';

export class IoWatch {
  readonly #deadlineMs: number;
  #overdue = 0;

  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs;
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
      const timer = setTimeout(() => reject(new IoError('ETIMEDOUT', 'index')), this.#deadlineMs);
      timer.unref();
      io.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  #track(io: Promise<void>): Promise<void> {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.#overdue++;
    }, this.#deadlineMs);
    timer.unref();
    return io.finally(() => {
      clearTimeout(timer);
      if (late) this.#overdue--;
    });
  }
}
