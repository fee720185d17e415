/** Points of a sweep as the command makes and runs them. */

import { readWords } from '../../../src/sim/description/readers.ts';
import type { SweepPoint, SweptPoint } from '../../../src/simulate/point.ts';
import * as sweep from '../../../src/simulate/sweep.ts';
import { WorkerPool } from '../../../src/workers/workerPool.ts';

export function pointsOf(axes: readonly string[], args: readonly string[]): SweepPoint[] {
  return sweep.pointsOf(axes, readWords(args));
}

export async function runPoints(points: readonly SweepPoint[], workers: number): Promise<SweptPoint[]> {
  const pool = new WorkerPool({ workers, wallMs: Infinity });
  try {
    return await sweep.runPoints(points, pool);
  } finally {
    await pool.close();
  }
}
