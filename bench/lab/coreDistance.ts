/**
 * How far apart the cores of a virtual machine are. Its host moves them about: onto the two threads of one
 * core, under one cache, or apart. No counter tells, but everything that one core hands to another then takes
 * another time. A look lets two threads bounce a cache line between them and measures how long it takes there
 * and back.
 */

import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';

/** Words of the shared memory, in cache lines of their own. */
export const Word = { BALL: 0, PLAYING: 32, ANSWERING: 64, COUNT: 96 } as const;

const SERIES = 4;
const BOUNCES = 64;
/** The other thread has no core of its own now. */
const GIVE_UP_MS = 2;

export class CoreDistance implements AsyncDisposable {
  readonly #shared: Int32Array = new Int32Array(new SharedArrayBuffer(4 * Word.COUNT));
  readonly #thread: Worker | undefined;

  constructor() {
    if (availableParallelism() < 2) return;
    this.#thread = new Worker(new URL('./echoThread.ts', import.meta.url), { workerData: this.#shared });
    this.#thread.unref();
  }

  /** Nanoseconds, the best of a few short series; 0 where no second core is to be had now. */
  lookNs(): number {
    const shared = this.#shared;
    if (this.#thread === undefined) return 0;
    const untilMs = performance.now() + GIVE_UP_MS;
    Atomics.store(shared, Word.PLAYING, 1);
    Atomics.notify(shared, Word.PLAYING);
    let bestMs = Number.POSITIVE_INFINITY;
    while (Atomics.load(shared, Word.ANSWERING) === 0 && performance.now() < untilMs);
    for (let series = 0; series < SERIES && performance.now() < untilMs; series++) {
      const startedMs = performance.now();
      if (this.#bounce(untilMs)) bestMs = Math.min(bestMs, performance.now() - startedMs);
    }
    Atomics.store(shared, Word.PLAYING, 0);
    return bestMs === Number.POSITIVE_INFINITY ? 0 : (bestMs * 1e6) / BOUNCES;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#thread?.terminate();
  }

  #bounce(untilMs: number): boolean {
    const shared = this.#shared;
    for (let i = 0; i < BOUNCES; i++) {
      const ball = Atomics.load(shared, Word.BALL) | 1;
      Atomics.store(shared, Word.BALL, ball);
      for (let spins = 1; Atomics.load(shared, Word.BALL) === ball; spins++) {
        if (spins % 4096 === 0 && performance.now() > untilMs) return false;
      }
    }
    return true;
  }
}
