/** A thread of a sweep: it runs one point after the other, as the main thread hands them out. */

import { parentPort } from 'node:worker_threads';
import { TierKVError } from '../../runtime/errors.ts';
import { type Point, type PointResult, runPoint } from './point.ts';

export interface Task {
  readonly index: number;
  readonly point: Point;
}

export type Answer =
  | { readonly index: number; readonly result: PointResult }
  | {
      readonly index: number;
      readonly error: {
        readonly code: string | undefined;
        readonly field: string | undefined;
        message: string;
      };
    };

parentPort?.on('message', ({ index, point }: Task) => {
  let answer: Answer;
  try {
    answer = { index, result: runPoint(point) };
  } catch (error) {
    const known = error instanceof TierKVError ? error : undefined;
    const message = error instanceof Error ? error.message : String(error);
    answer = { index, error: { code: known?.code, field: known?.field, message } };
  }
  parentPort?.postMessage(answer);
});
