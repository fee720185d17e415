/**
 * A thread that digests: what `digestThreads.ts` starts. It is told where buffers lie as they are first used, and answers each
 * list of tasks with their digests in the same order. Whoever asks holds the buffer until then: it is the same memory, which
 * this thread only looks at.
 */

import { parentPort } from 'node:worker_threads';
import type { Stretch } from '../arena/index.ts';
import { loadLibc } from '../posix/index.ts';
import { hostDigest } from './hostDigest.ts';

export interface Task {
  /** Number of the buffer. */
  readonly buffer: number;
  readonly at: number;
  readonly bytes: number;
  readonly firstWord: number;
}

export interface DigestRequest {
  /** Where buffers lie that were not named before, with their numbers. */
  readonly buffers: readonly (readonly [number, Stretch])[];
  readonly tasks: readonly Task[];
}

/** Two words a task. */
export type DigestAnswer = Uint32Array;

const libc = await loadLibc();
if (typeof libc === 'string') throw new Error(libc);
const known = new Map<number, ArrayBuffer>();

parentPort?.on('message', ({ buffers, tasks }: DigestRequest) => {
  for (const [number, { address, bytes }] of buffers) known.set(number, libc.view(address, bytes));
  const answer: DigestAnswer = new Uint32Array(2 * tasks.length);
  tasks.forEach(({ buffer, at, bytes, firstWord }, i) => {
    const { lo, hi } = hostDigest(new Uint8Array(known.get(buffer)!, at, bytes), firstWord);
    answer[2 * i] = lo;
    answer[2 * i + 1] = hi;
  });
  parentPort!.postMessage(answer);
});
