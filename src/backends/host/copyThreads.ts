/**
 * Threads of this process that copy memory while the event loop is free. There is one set of them for all pools, started
 * by the first that wants it and ended with the last. They copy by address, so this file owns what keeps an address
 * alive: the list of the views under way.
 *
 * - A view stays in the list until its part is copied or called off. `settle` blocks until that is so, a few parts at
 *   the most; it comes before each `unmap`, `destroy` and release of memory that a copy may touch.
 * - Where a thread dies, the main thread copies its parts anew. Where all have, `submit` takes nothing more.
 * - Where a thread neither copies nor dies for `STUCK_MS`, `settle` says so: its memory must be kept for ever.
 *
 * They are no part of libuv's pool, which reads and writes the files: a queue of copies would delay blocks from disk.
 */

import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { threadProgram } from '../../packageFiles.ts';
import { invariant } from '../../runtime/errors.ts';
import { Control, type CopyRing, PARTS, PartState, ringMemory, ringOver, TASKS } from './copyRing.ts';
import { loadLibc } from './posix.ts';

/** Bytes that go from one place to another of the same length. */
export interface HostMove {
  readonly into: Uint8Array;
  readonly from: Uint8Array;
}

/** Moves that end together. */
interface CopyTask {
  /** Whether all bytes are in place; false where it was called off. */
  readonly whole: Promise<boolean>;
}

interface TaskUnderWay extends CopyTask {
  readonly index: number;
  readonly parts: readonly { readonly part: number; readonly move: HostMove }[];
  isOff: boolean;
  end(whole: boolean): void;
}

/** Longest time in which a part is copied, however busy the machine is. */
const STUCK_MS = 2000;

let shared: CopyThreads | undefined;
let holders = 0;

/**
 * The threads of this process, `count` of them at least.
 * @returns undefined without threads: where koffi is missing, or where the program of the threads is missing
 */
export async function holdCopyThreads(count: number): Promise<CopyThreads | undefined> {
  const libc = await loadLibc();
  if (typeof libc === 'string') return undefined;
  shared ??= new CopyThreads((bytes) => libc.addressOf(bytes));
  holders++;
  const held = shared;
  if (await held.grow(count)) return held;
  letCopyThreadsGo();
  return undefined;
}

/** Threads that this machine has cores for beside the main thread. */
export function copyThreadsMost(): number {
  return availableParallelism() - 1;
}

/** Call once for each `holdCopyThreads` that gave threads. */
export function letCopyThreadsGo(): void {
  if (--holders > 0) return;
  shared?.end();
  shared = undefined;
}

/** Waits for copies that touch the memory. @returns whether the memory may be given back */
export function settleCopiesOn(memory: ReadonlySet<ArrayBufferLike>): boolean {
  return shared?.settle(({ into, from }) => memory.has(into.buffer) || memory.has(from.buffer)) ?? true;
}

export class CopyThreads {
  readonly #addressOf: (bytes: Uint8Array) => bigint;
  readonly #memory: SharedArrayBuffer = ringMemory();
  readonly #ring: CopyRing = ringOver(this.#memory);
  readonly #workers: (Worker | undefined)[] = [];
  readonly #underWay: Map<number, TaskUnderWay> = new Map();
  #watching = false;

  constructor(addressOf: (bytes: Uint8Array) => bigint) {
    this.#addressOf = addressOf;
    Atomics.store(this.#ring.control, Control.DYING, -1);
  }

  /** Threads that live. */
  get count(): number {
    return this.#workers.filter((worker) => worker !== undefined).length;
  }

  /** Tasks under way. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /** Starts threads until there are `count`. @returns false where they do not start */
  async grow(count: number): Promise<boolean> {
    const { control } = this.#ring;
    Atomics.store(control, Control.WANTED, Math.max(count, Atomics.load(control, Control.WANTED)));
    const started: Promise<boolean>[] = [];
    while (this.#workers.length < count) started.push(this.#start(this.#workers.length));
    return (await Promise.all(started)).every((isReady) => isReady) && this.count > 0;
  }

  /** Ends the threads from number `count` on. None may be claiming: nothing is under way. */
  shrink(count: number): void {
    invariant(this.#underWay.size === 0, 'threads end while nothing is under way');
    Atomics.store(this.#ring.control, Control.WANTED, count);
    this.#wakeAll();
    this.#workers.length = Math.min(count, this.#workers.length);
  }

  /** Ends all threads, after what is under way. */
  end(): void {
    this.settle(() => true);
    Atomics.store(this.#ring.control, Control.WANTED, 0);
    this.#wakeAll();
    this.#workers.length = 0;
  }

  /**
   * Queues the moves in parts of at most `partBytes`.
   * @returns undefined where the ring has no room or no thread lives: nothing was queued
   */
  submit(moves: readonly HostMove[], partBytes: number): CopyTask | undefined {
    const { control, states, tasks, left, bytes, places } = this.#ring;
    // memory that was detached has no address
    if (moves.some(({ into, from }) => into.byteLength !== from.byteLength)) return undefined;
    const pieces = moves.flatMap((move) => cut(move, partBytes));
    const index = this.#freeTask();
    const tail = Atomics.load(control, Control.TAIL);
    const partAt = (i: number): number => ((tail + i) >>> 0) % PARTS;
    if (index === undefined || pieces.length === 0 || pieces.length > PARTS || this.count === 0)
      return undefined;
    if (pieces.some((_, i) => Atomics.load(states, partAt(i)) !== PartState.FREE)) return undefined;
    let end: TaskUnderWay['end'] = () => {};
    const whole = new Promise<boolean>((resolve) => {
      end = resolve;
    });
    const parts = pieces.map((move, i) => ({ part: partAt(i), move }));
    this.#underWay.set(index, { index, parts, whole, end, isOff: false });
    Atomics.store(left, index, pieces.length);
    for (const { part, move } of parts) {
      places[2 * part] = this.#addressOf(move.into);
      places[2 * part + 1] = this.#addressOf(move.from);
      bytes[part] = move.from.byteLength;
      tasks[part] = index;
      Atomics.store(states, part, PartState.QUEUED);
    }
    Atomics.store(control, Control.TAIL, (tail + pieces.length) | 0);
    Atomics.notify(control, Control.TAIL);
    for (const worker of this.#workers) worker?.ref();
    this.#watch();
    return { whole };
  }

  /**
   * Calls off the parts of tasks with a move that `touches` is true for, and blocks until the parts
   * that threads have begun are copied. @returns false where a thread does not end its part
   */
  settle(touches: (move: HostMove) => boolean): boolean {
    const { control, states, left } = this.#ring;
    const touched = [...this.#underWay.values()].filter(({ parts }) =>
      parts.some(({ move }) => touches(move)),
    );
    for (const task of touched) {
      for (const { part } of task.parts) {
        if (this.#ring.tasks[part] !== task.index) continue;
        if (Atomics.compareExchange(states, part, PartState.QUEUED, PartState.OFF) !== PartState.QUEUED)
          continue;
        task.isOff = true;
        Atomics.sub(left, task.index, 1);
      }
    }
    const giveUpMs = performance.now() + STUCK_MS;
    for (;;) {
      const done = Atomics.load(control, Control.DONE);
      if (touched.every(({ index }) => Atomics.load(left, index) === 0)) break;
      const waitMs = giveUpMs - performance.now();
      if (waitMs <= 0) return false;
      Atomics.wait(control, Control.DONE, done, waitMs);
    }
    this.#collect();
    Atomics.add(control, Control.DONE, 1);
    Atomics.notify(control, Control.DONE);
    return true;
  }

  /** Lets the thread die in its next part, as it does where its memory runs out. For tests. */
  letDie(thread: number): void {
    Atomics.store(this.#ring.control, Control.DYING, thread);
  }

  #start(self: number): Promise<boolean> {
    return new Promise((resolve) => {
      const worker = new Worker(threadProgram('backends/host/copyThread'), {
        workerData: { memory: this.#memory, self },
        // an option for the text of a program is an error for its threads
        execArgv: process.execArgv.filter((option) => !option.startsWith('--input-type')),
      });
      this.#workers[self] = worker;
      worker.once('message', () => {
        // it is ready; until then it keeps the process, which waits for it
        if (this.#underWay.size === 0) worker.unref();
        resolve(true);
      });
      worker.on('error', () => {}); // what it held is copied when it has ended
      worker.once('exit', () => {
        resolve(false);
        this.#ended(self, worker);
      });
    });
  }

  /** Copies the parts that the thread has left, and all that is queued where it was the last. */
  #ended(self: number, worker: Worker): void {
    if (this.#workers[self] === worker) this.#workers[self] = undefined;
    const { control, states, left, tasks } = this.#ring;
    const isLast = this.count === 0;
    for (const { index, parts } of this.#underWay.values()) {
      for (const { part, move } of parts) {
        if (tasks[part] !== index) continue;
        const state = Atomics.load(states, part);
        const isLeft = state === PartState.TAKEN + self || (isLast && state === PartState.QUEUED);
        if (!isLeft || Atomics.compareExchange(states, part, state, PartState.FREE) !== state) continue;
        move.into.set(move.from);
        Atomics.sub(left, index, 1);
      }
    }
    if (isLast) {
      Atomics.store(control, Control.HEAD, Atomics.load(control, Control.TAIL));
      states.fill(PartState.FREE); // no thread is left to pass what was called off
    }
    this.#collect();
  }

  #wakeAll(): void {
    // the value must change, or a thread that is about to sleep misses the call
    const { control, states } = this.#ring;
    const tail = Atomics.load(control, Control.TAIL);
    Atomics.store(states, (tail >>> 0) % PARTS, PartState.OFF);
    Atomics.store(control, Control.TAIL, (tail + 1) | 0);
    Atomics.notify(control, Control.TAIL);
  }

  #freeTask(): number | undefined {
    for (let index = 0; index < TASKS; index++) if (!this.#underWay.has(index)) return index;
    return undefined;
  }

  /** Ends the tasks whose parts are all done. */
  #collect(): void {
    for (const [index, task] of this.#underWay) {
      if (Atomics.load(this.#ring.left, index) > 0) continue;
      this.#underWay.delete(index);
      task.end(!task.isOff);
    }
    if (this.#underWay.size === 0) for (const worker of this.#workers) worker?.unref();
  }

  /** Collects whenever a task is done, as long as one is under way. */
  #watch(): void {
    if (this.#watching) return;
    this.#watching = true;
    void this.#collectEach();
  }

  async #collectEach(): Promise<void> {
    while (this.#underWay.size > 0) {
      const { control } = this.#ring;
      const done = Atomics.load(control, Control.DONE);
      this.#collect();
      if (this.#underWay.size === 0) break;
      await Atomics.waitAsync(control, Control.DONE, done).value;
    }
    this.#watching = false;
  }
}

/** The move in pieces of at most `partBytes`. */
function cut({ into, from }: HostMove, partBytes: number): HostMove[] {
  const pieces: HostMove[] = [];
  for (let at = 0; at < from.byteLength; at += partBytes) {
    const end = Math.min(from.byteLength, at + partBytes);
    pieces.push({ into: into.subarray(at, end), from: from.subarray(at, end) });
  }
  return pieces;
}
