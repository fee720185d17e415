/** A thread of a sweep: it runs one point after the other, as the main thread hands them out. */

import { parentPort } from 'node:worker_threads';
import { TierKVError } from '../../runtime/errors.ts';
import { type Point, runPoint, type SweptPoint } from './point.ts';

export interface Task {
  readonly index: number;
  readonly point: Point;
}

export interface Answer {
  readonly index: number;
  readonly result: SweptPoint;
}

function swept(point: Point): SweptPoint {
  try {
    return runPoint(point);
  } catch (error) {
    const { values } = point;
    const message = error instanceof Error ? error.message : String(error);
    if (!(error instanceof TierKVError)) return { values, error: { message } };
    const { code, field } = error;
    return { values, error: { code, message, ...(field === undefined ? {} : { field }) } };
  }
}

parentPort?.on('message', ({ index, point }: Task) => {
  const answer: Answer = { index, result: swept(point) };
  parentPort?.postMessage(answer);
});
