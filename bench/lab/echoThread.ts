/**
 * The other thread of `coreDistance.ts`: answers each odd ball with the next even one while it is asked to.
 */

import { workerData } from 'node:worker_threads';
import { Word } from './coreDistance.ts';

const shared = workerData as Int32Array;
for (;;) {
  Atomics.wait(shared, Word.PLAYING, 0);
  Atomics.store(shared, Word.ANSWERING, 1);
  while (Atomics.load(shared, Word.PLAYING) === 1) {
    const ball = Atomics.load(shared, Word.BALL);
    if (ball % 2 !== 0) Atomics.store(shared, Word.BALL, ball + 1);
  }
  Atomics.store(shared, Word.ANSWERING, 0);
}
