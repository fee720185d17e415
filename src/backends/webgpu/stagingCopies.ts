/**
 * How bytes cross between host memory and mapped buffers: by `set` on the main thread, or by threads while the event
 * loop is free. Which of them, how many threads and from which size on is measured when the pool is opened, on the
 * pool's own buffers: a mapped buffer may lie in host memory or behind the bus, and only a copy shows what threads bring.
 *
 * - Threads copy by address, so they get memory that cannot be taken away: mapped buffers, which this room owns, and
 *   memory of arenas. Any other memory, such as an embedder's, may be detached at any time, and is copied by `set`.
 * - The device is not destroyed, and no buffer unmapped, while a thread copies: `LiveDevice` settles the copies first.
 * - Where threads do not copy clearly faster, all of them end with the measurement.
 */

import {
  type CopyThreads,
  copyThreadsMost,
  type HostMove,
  holdCopyThreads,
  letCopyThreadsGo,
} from '../host/copyThreads.ts';
import { memoryOf } from '../host/hostDigest.ts';
import type { LiveDevice } from './device.ts';

/** A measured plan, or one that was asked for. Infinity: never by threads. */
interface CopyPlan {
  readonly threads: number;
  /** Bytes of a batch from which on threads copy it, for each direction. */
  readonly fromBytes: { readonly in: number; readonly out: number };
}

const MIB = 1024 * 1024;
/** Buffers below it are no case for threads: the hand-over takes as long as the copy. */
const LEAST_BUFFER_BYTES = 8 * MIB;
/** Sizes of a batch that are tried, the smallest first. */
const BATCH_BYTES = [1, 2, 4, 8].map((mib) => mib * MIB);
/** Threads must copy this many times as fast as `set`, or the main thread copies. */
const CLEARLY = 1.2;
/** More threads than these are for machines on which they were not measured. */
const THREADS_MAX = 8;
const ROUNDS = 3;
/** A larger part is cut, so that a loss of the device waits for little. */
const PART_BYTES = 8 * MIB;

const byMain: CopyPlan = {
  threads: 0,
  fromBytes: { in: Number.POSITIVE_INFINITY, out: Number.POSITIVE_INFINITY },
};

/** Plans by adapter and size of the buffers: a device that replaces a lost one is not measured again. */
const known: Map<string, CopyPlan> = new Map();

export class StagingCopies {
  readonly #live: LiveDevice;
  #plan: CopyPlan = byMain;
  #threads: CopyThreads | undefined;
  /** Mapped memory that threads copy from or to. */
  readonly #ranges: Set<ArrayBufferLike> = new Set();
  readonly #unwatch: () => void;

  constructor(live: LiveDevice) {
    this.#live = live;
    this.#unwatch = live.onSettle(() => this.settle());
  }

  get plan(): CopyPlan {
    return this.#plan;
  }

  /**
   * Decides who copies; until then it is the main thread.
   * @param asked threads that the embedder wants, or that a measurement decides
   */
  async choose(bufferBytes: number, asked: number | 'measured' = 0, mapped: WithMapped): Promise<void> {
    const most = Math.min(THREADS_MAX, copyThreadsMost());
    const name = `${this.#live.adapter.name} ${bufferBytes}`;
    let plan = byMain;
    if (asked !== 'measured') plan = { threads: asked, fromBytes: { in: 1, out: 1 } };
    else if (bufferBytes >= LEAST_BUFFER_BYTES && most >= 2) {
      plan = known.get(name) ?? (await measured(most, mapped));
      known.set(name, plan);
    }
    if (plan.threads > 0) this.#threads = await holdCopyThreads(plan.threads);
    this.#plan = this.#threads === undefined ? byMain : plan;
  }

  /**
   * Copies all moves. `into` or `from` of each is in a mapped buffer; the other side is the host's.
   * @returns undefined where it has copied them; else whether all bytes are in place, once that is known: false where
   * the device was lost, or the memory given back, meanwhile
   */
  move(moves: readonly HostMove[], way: 'in' | 'out'): Promise<boolean> | undefined {
    const { isDestroyed, lost } = this.#live;
    if (isDestroyed) return lost.then(() => false);
    const bytes = moves.reduce((sum, { from }) => sum + from.byteLength, 0);
    const task =
      this.#threads === undefined || bytes === 0 || bytes < this.#plan.fromBytes[way]
        ? undefined
        : this.#threads.submit(moves, PART_BYTES);
    if (task === undefined) {
      for (const { into, from } of moves) into.set(from);
      return undefined;
    }
    const ranges = moves.map(({ into, from }) => (way === 'in' ? into : from).buffer);
    for (const range of ranges) this.#ranges.add(range);
    return task.whole.then(async (isWhole) => {
      for (const range of ranges) this.#ranges.delete(range);
      if (!isWhole && this.#live.isDestroyed) await lost;
      return isWhole;
    });
  }

  /** Whether threads may copy the memory: it cannot be detached. */
  isSteady(bytes: Uint8Array): boolean {
    return this.#threads !== undefined && memoryOf(bytes.buffer) !== undefined;
  }

  /** Calls off what no thread has begun, and waits for the rest. @returns false where a thread is stuck */
  settle(): boolean {
    return (
      this.#threads?.settle(
        ({ into, from }) => this.#ranges.has(into.buffer) || this.#ranges.has(from.buffer),
      ) ?? true
    );
  }

  /** No copy may be under way. */
  destroy(): void {
    this.#unwatch();
    if (this.#threads !== undefined) letCopyThreadsGo();
  }
}

/** Calls with the mapped bytes of all buffers of a direction, which are mapped during the call alone. */
type WithMapped = (way: 'in' | 'out', use: (ranges: readonly Uint8Array[]) => Promise<void>) => Promise<void>;

/** Which number of threads copies clearly faster than `set`, and from which size on, in each direction. */
async function measured(most: number, mapped: WithMapped): Promise<CopyPlan> {
  const counts = [2, 3, 4, 6, 8].filter((count) => count <= most);
  const threads = await holdCopyThreads(counts[counts.length - 1]);
  if (threads === undefined) return byMain;
  const fromBytes = { ...byMain.fromBytes };
  let chosen = 0;
  try {
    for (const way of ['in', 'out'] as const) {
      await mapped(way, async (ranges) => {
        const host = ranges.map(({ byteLength }) => new Uint8Array(byteLength).fill(1));
        const movesOf = (bytes: number): HostMove[] =>
          ranges.map((range, i) => {
            const [there, here] = [range.subarray(0, bytes), host[i].subarray(0, bytes)];
            return way === 'in' ? { into: there, from: here } : { into: here, from: there };
          });
        const gains = await gainsOf(threads, counts, movesOf(LEAST_BUFFER_BYTES));
        const best = Math.max(...gains.values());
        if (best < CLEARLY) return;
        const count = counts.find((one) => gains.get(one)! >= 0.9 * best)!;
        chosen = Math.max(chosen, count);
        for (const bytes of BATCH_BYTES.toReversed()) {
          const gain = (await gainsOf(threads, [count], movesOf(bytes))).get(count)!;
          if (gain < CLEARLY) break;
          fromBytes[way] = bytes;
        }
      });
    }
    if (chosen > 0 && threads.underWay === 0) threads.shrink(chosen);
    return chosen === 0 ? byMain : { threads: chosen, fromBytes };
  } finally {
    letCopyThreadsGo();
  }
}

/** How many times as fast as `set` each number of threads makes the moves: medians of rounds in turns. */
async function gainsOf(
  threads: CopyThreads,
  counts: readonly number[],
  moves: readonly HostMove[],
): Promise<Map<number, number>> {
  const times = new Map<number, number[]>([0, ...counts].map((count) => [count, []]));
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [count, taken] of times) {
      const startMs = performance.now();
      await makeMoves(threads, count, moves);
      if (round > 0) taken.push(performance.now() - startMs); // the first round touches the memory
    }
  }
  const middle = (of: number[]): number => of.sort((a, b) => a - b)[of.length >> 1];
  const alone = middle(times.get(0)!);
  return new Map(counts.map((count) => [count, alone / middle(times.get(count)!)]));
}

/** @param count moves under way at a time, each by a thread; 0 for the main thread */
async function makeMoves(threads: CopyThreads, count: number, moves: readonly HostMove[]): Promise<void> {
  const left = [...moves];
  const lane = async (): Promise<void> => {
    for (let move = left.shift(); move !== undefined; move = left.shift()) {
      const task = count === 0 ? undefined : threads.submit([move], PART_BYTES);
      if (task === undefined) move.into.set(move.from);
      else await task.whole;
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, count) }, lane));
}
