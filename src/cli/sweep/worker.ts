/** A thread of a sweep: it runs one point after the other, as the main thread hands them out. */

import { parentPort } from 'node:worker_threads';
import { TierKVError } from '../../runtime/errors.ts';
import { runPoint, type SweepPoint, type SweptPoint } from './point.ts';

export interface PointTask {
  readonly index: number;
  readonly point: SweepPoint;
}

export interface PointAnswer {
  readonly index: number;
  readonly result: SweptPoint;
}

function swept(point: SweepPoint): SweptPoint {
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

parentPort?.on('message', ({ index, point }: PointTask) => {
  const answer: PointAnswer = { index, result: swept(point) };
  parentPort?.postMessage(answer);
});
