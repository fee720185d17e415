/**
 * Fits `linear` to step records: least relative squares with no negative coefficient, term by term until
 * nothing moves.
 */

import { type LinearCoefficients, linearFeatures } from '../backends/linear.ts';
import { batchOf, type StepRecord } from './measured/stepRecords.ts';
import type { Prediction } from './score.ts';

const sweeps = 2000;

/**
 * Coordinate descent for least squares under non-negativity; the problem is convex, so it ends at the one
 * minimum.
 * @param rows features; @param targets what they should add up to. Both already weighted.
 */
export function nonNegativeLeastSquares(
  rows: readonly (readonly number[])[],
  targets: readonly number[],
): number[] {
  const terms = rows[0]?.length ?? 0;
  const values: number[] = new Array(terms).fill(0);
  const residual = targets.map((target) => -target);
  const norms = values.map((_, j) => rows.reduce((sum, row) => sum + row[j] * row[j], 0));
  for (let sweep = 0; sweep < sweeps; sweep++) {
    let moved = 0;
    for (let j = 0; j < terms; j++) {
      if (norms[j] === 0) continue;
      let slope = 0;
      for (let i = 0; i < rows.length; i++) slope += rows[i][j] * residual[i];
      const next = Math.max(0, values[j] - slope / norms[j]);
      const step = next - values[j];
      if (step === 0) continue;
      for (let i = 0; i < rows.length; i++) residual[i] += step * rows[i][j];
      values[j] = next;
      moved = Math.max(moved, Math.abs(step) * Math.sqrt(norms[j]));
    }
    if (moved < 1e-9) break;
  }
  return values;
}

export interface LinearFit {
  readonly coefficients: LinearCoefficients;
  predict(records: readonly StepRecord[]): Prediction[];
}

export function fitLinear(records: readonly StepRecord[]): LinearFit {
  const rows = records.map((record) =>
    linearFeatures(batchOf(record)).map((feature) => feature / record.measuredUs),
  );
  const beta = nonNegativeLeastSquares(
    rows,
    records.map(() => 1),
  );
  return {
    coefficients: { alpha: [0, 0, 0], beta },
    predict: (judged) =>
      judged.map((record) => ({
        predictedUs: linearFeatures(batchOf(record)).reduce((sum, feature, j) => sum + feature * beta[j], 0),
        measuredUs: record.measuredUs,
      })),
  };
}
