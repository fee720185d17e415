/**
 * Worker threads that run tasks in the order asked, as many at once as there are threads. A task that takes longer
 * than its limit is ended with its thread, and a new thread takes the next: it costs no other task anything but the
 * time of a start. The limit is for the machine; what a policy may do is counted in steps.
 */

import { Worker } from 'node:worker_threads';
import { threadProgram } from '../packageFiles.ts';
import { requirePositive } from '../runtime/errors.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';

export interface PoolLimits {
  /** Threads. */
  readonly workers: number;
  /** Longest time of one task in milliseconds; Infinity for no limit. */
  readonly wallMs: number;
  /** Heap of a thread; absent for Node's own limit. */
  readonly heapMiB?: number;
}

/** Without a bound where it is infinite. */
const requireWall = (wallMs: number, field: string): number =>
  wallMs === Number.POSITIVE_INFINITY ? wallMs : requirePositive(field, wallMs);

const limitTable = optionTable({
  workers: is.integer(1),
  wallMs: is.by(requireWall),
  heapMiB: is.optional(is.positive()),
} satisfies Kinds<PoolLimits>);

/** Kinds of tasks by name, each with what it is asked and what it answers. */
type TaskKinds<Kinds> = {
  readonly [Kind in keyof Kinds]: { readonly task: object; readonly answer: object };
};

/** A task that has no answer, since the machine or the program failed. */
export interface Unanswered {
  readonly unanswered: 'out of time' | 'failed' | 'ended';
  readonly message: string;
}

/** A runner of tasks: threads of this machine, or workers elsewhere. */
export interface TaskRunner<Kinds extends TaskKinds<Kinds>> {
  /**
   * @param make the task, asked for when its turn comes; what it throws is thrown to the caller
   * @param leftMs time that the task may take, asked for when its turn comes; then it is ended, without an answer
   * @returns undefined where it was called off before it began
   */
  run<Kind extends keyof Kinds>(
    kind: Kind,
    make: () => Kinds[Kind]['task'],
    isCalledOff?: () => boolean,
    leftMs?: () => number,
  ): Promise<Kinds[Kind]['answer'] | Unanswered | undefined>;
  close(): Promise<void>;
}

export function isUnanswered(answer: object): answer is Unanswered {
  return 'unanswered' in answer;
}

interface Waiting {
  readonly begin: () => object;
  readonly done: (answer: object | undefined) => void;
  readonly failed: (error: unknown) => void;
  readonly isCalledOff: () => boolean;
  readonly leftMs: () => number;
}

export class WorkerPool<Kinds extends TaskKinds<Kinds>> implements TaskRunner<Kinds> {
  readonly #limits: PoolLimits;
  readonly #waiting: Waiting[] = [];
  readonly #idle: Worker[] = [];
  readonly #all = new Set<Worker>();
  #closed = false;

  constructor(limits: PoolLimits) {
    this.#limits = limitTable.readFlat(limits, 'limits');
  }

  /** @param leftMs time that this task may take. Default: the pool's */
  run<Kind extends keyof Kinds>(
    kind: Kind,
    make: () => Kinds[Kind]['task'],
    isCalledOff: () => boolean = () => false,
    leftMs: () => number = () => this.#limits.wallMs,
  ): Promise<Kinds[Kind]['answer'] | Unanswered | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({
        leftMs,
        begin: () => ({ kind, task: make() }),
        // the thread answers a task with the answer of its kind
        done: (answer) => resolve(answer as Kinds[Kind]['answer'] | Unanswered | undefined),
        failed: reject,
        isCalledOff: () => this.#closed || isCalledOff(),
      });
      this.#next();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { done } of this.#waiting.splice(0)) done(undefined);
    await Promise.all([...this.#all].map((worker) => worker.terminate()));
  }

  #next(): void {
    while (this.#waiting.length > 0 && (this.#idle.length > 0 || this.#all.size < this.#limits.workers)) {
      const next = this.#waiting.shift() as Waiting;
      if (next.isCalledOff()) {
        next.done(undefined);
        continue;
      }
      let message: object;
      try {
        message = next.begin();
      } catch (error) {
        next.failed(error);
        continue;
      }
      this.#give(this.#idle.pop() ?? this.#start(), message, next);
    }
  }

  #start(): Worker {
    const { heapMiB } = this.#limits;
    const worker = new Worker(threadProgram('policy/workers/thread'), {
      ...(heapMiB === undefined ? {} : { resourceLimits: { maxOldGenerationSizeMb: heapMiB } }),
    });
    worker.unref();
    this.#all.add(worker);
    return worker;
  }

  #give(worker: Worker, message: object, { done, leftMs }: Waiting): void {
    const wallMs = leftMs();
    const end = (answer: object, reusable: boolean): void => {
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
    const failed = (unanswered: Unanswered['unanswered'], why: string): void =>
      end({ unanswered, message: why } satisfies Unanswered, false);
    const answered = (answer: object): void => end(answer, true);
    const broke = (error: Error): void => failed('failed', error.message);
    const ended = (): void => failed('ended', 'it ended before its answer');
    const timer =
      wallMs === Infinity
        ? undefined
        : setTimeout(() => failed('out of time', `it took longer than ${wallMs} ms`), wallMs);
    worker.ref();
    worker.on('message', answered).on('error', broke).on('exit', ended);
    worker.postMessage(message);
  }
}
