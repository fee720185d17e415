/**
 * Worker threads that run tasks in the order asked, as many at once as there are threads. A task that takes
 * longer than its limit is ended with its thread, and a new thread takes the next: it costs no other task
 * anything but the time of a start. The limit is for the machine; what a policy may do is counted in steps.
 */

import { Worker } from 'node:worker_threads';
import type { Task } from './task.ts';
import type { Answer } from './worker.ts';

interface Waiting {
  readonly task: Task;
  readonly done: (answer: Answer) => void;
  /** Whether nobody wants it any more. */
  readonly isCalledOff: () => boolean;
}

export interface PoolLimits {
  /** Threads. */
  readonly workers: number;
  /** Longest time of one task in milliseconds. */
  readonly wallMs: number;
  /** Heap of a thread. */
  readonly heapMiB: number;
}

export class WorkerPool {
  readonly #limits: PoolLimits;
  readonly #waiting: Waiting[] = [];
  readonly #idle: Worker[] = [];
  readonly #all = new Set<Worker>();
  #closed = false;

  constructor(limits: PoolLimits) {
    this.#limits = limits;
  }

  /** @returns undefined where it was called off before it began */
  run(task: Task, isCalledOff: () => boolean): Promise<Answer | undefined> {
    return new Promise((resolve) => {
      this.#waiting.push({
        task,
        done: resolve,
        isCalledOff: () => {
          const off = this.#closed || isCalledOff();
          if (off) resolve(undefined);
          return off;
        },
      });
      this.#next();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { isCalledOff } of this.#waiting.splice(0)) isCalledOff();
    await Promise.all([...this.#all].map((worker) => worker.terminate()));
  }

  #next(): void {
    while (this.#waiting.length > 0 && (this.#idle.length > 0 || this.#all.size < this.#limits.workers)) {
      const next = this.#waiting.shift() as Waiting;
      if (next.isCalledOff()) continue;
      this.#give(this.#idle.pop() ?? this.#start(), next);
    }
  }

  #start(): Worker {
    const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
    const worker = new Worker(new URL(`./worker.${extension}`, import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: this.#limits.heapMiB },
    });
    worker.unref();
    this.#all.add(worker);
    return worker;
  }

  #give(worker: Worker, { task, done }: Waiting): void {
    const { wallMs } = this.#limits;
    const end = (answer: Answer, reusable: boolean): void => {
      clearTimeout(timer);
      worker.off('message', answered).off('error', broke).off('exit', ended);
      if (reusable) {
        worker.unref();
        this.#idle.push(worker);
      } else {
        // what it still says is of no interest
        worker.on('error', () => {});
        this.#all.delete(worker);
        void worker.terminate();
      }
      done(answer);
      this.#next();
    };
    const failed = (message: string): void =>
      end({ error: { kind: 'infrastructure_timeout', message } }, false);
    const answered = (answer: Answer): void => end(answer, true);
    const broke = (error: Error): void => failed(`the thread of the run failed: ${error.message}`);
    const ended = (): void => failed('the thread of the run ended before its answer');
    const timer = setTimeout(
      () =>
        failed(`the run took longer than ${wallMs} ms of the machine's time. Raise the limit, or do less`),
      wallMs,
    );
    worker.ref();
    worker.on('message', answered).on('error', broke).on('exit', ended);
    worker.postMessage(task);
  }
}
