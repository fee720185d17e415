/**
 * A thread that digests: what `digestThreads.ts` starts. It is told of memories as they are first used, and answers each list
 * of stretches with their digests in the same order.
 */

import { parentPort } from 'node:worker_threads';
import { adoptMemory, type SharedMemory } from '../arena/index.ts';
import { hostDigest } from './hostDigest.ts';

export interface Stretch {
  /** Number of the memory. */
  readonly memory: number;
  readonly at: number;
  readonly bytes: number;
  readonly firstWord: number;
}

export interface DigestRequest {
  /** Memories that were not named before, with their numbers. */
  readonly memories: readonly (readonly [number, SharedMemory])[];
  readonly stretches: readonly Stretch[];
}

/** Two words a stretch. */
export type DigestAnswer = Uint32Array;

const buffers = new Map<number, SharedArrayBuffer>();

parentPort?.on('message', ({ memories, stretches }: DigestRequest) => {
  for (const [number, memory] of memories) buffers.set(number, adoptMemory(memory));
  const answer: DigestAnswer = new Uint32Array(2 * stretches.length);
  stretches.forEach(({ memory, at, bytes, firstWord }, i) => {
    const { lo, hi } = hostDigest(new Uint8Array(buffers.get(memory)!, at, bytes), firstWord);
    answer[2 * i] = lo;
    answer[2 * i + 1] = hi;
  });
  parentPort!.postMessage(answer);
});
