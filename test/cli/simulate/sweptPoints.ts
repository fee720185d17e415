/** Points of a sweep as the command makes and runs them. */

import { WorkerPool } from '../../../src/io/workerPool.ts';
import type { SweepPoint, SweptPoint } from '../../../src/sim/build/point.ts';
import * as sweep from '../../../src/sim/build/sweep.ts';
import { readWords } from '../../../src/sim/description/readers.ts';

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
