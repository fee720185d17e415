/**
 * Fits `linear` to step records: least relative squares with no negative coefficient, term by term until
 * nothing moves.
 */

import { inputError } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import { type LinearCoefficients, linearFeatures } from '../linear.ts';
import { batchOf, type StepRecord } from './stepRecords.ts';

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
  checkInputs({ rows, targets }, { rows: is.list(is.list(is.number())), targets: is.list(is.number()) });
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

interface LinearFit {
  readonly coefficients: LinearCoefficients;
  predict(records: readonly StepRecord[]): StepPrediction[];
}

/** Fits a `Linear` model to steps that were measured. */
export function fitLinear(records: readonly StepRecord[]): LinearFit {
  checkInputs({ records }, { records: is.list(is.fields({ experiment: is.text(), model: is.text() })) });
  if (records.length === 0) throw inputError('records', 'holds no step. Give steps that were measured.');
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

// Minimises a function of a few numbers without derivatives, by the simplex method of Nelder and Mead with
// restarts. It draws no random numbers: the same function and start give the same answer everywhere.

interface FitParameter {
  readonly name: string;
  readonly start: number;
  readonly min: number;
  readonly max: number;
}

interface Minimum {
  readonly values: readonly number[];
  readonly loss: number;
}

const reflection = -1;
const expansion = -2;
const contraction = 0.5;

function simplexFrom(start: readonly number[], parameters: readonly FitParameter[]): number[][] {
  const steps = parameters.map(({ start: value, min, max }) => {
    const span = Number.isFinite(max - min) ? (max - min) / 8 : Math.abs(value) / 2;
    return span > 0 ? span : 1;
  });
  return [
    [...start],
    ...start.map((_, i) =>
      start.map((value, j) =>
        i === j ? value + steps[i] * (value + steps[i] > parameters[i].max ? -1 : 1) : value,
      ),
    ),
  ];
}

function descend(loss: (x: readonly number[]) => number, simplex: number[][], rounds: number): Minimum {
  const points = simplex.map((values) => ({ values, loss: loss(values) }));
  const dimensions = points.length - 1;
  for (let round = 0; round < rounds; round++) {
    points.sort((a, b) => a.loss - b.loss);
    const worst = points[dimensions];
    const best = points[0];
    if (worst.loss - best.loss <= 1e-12 * Math.abs(best.loss) + 1e-300) break;
    const centre = best.values.map((_, j) => {
      let sum = 0;
      for (let i = 0; i < dimensions; i++) sum += points[i].values[j];
      return sum / dimensions;
    });
    const along = (t: number): { values: number[]; loss: number } => {
      const values = centre.map((value, j) => value + t * (worst.values[j] - value));
      return { values, loss: loss(values) };
    };
    const reflected = along(reflection);
    let next = reflected;
    if (reflected.loss < best.loss) {
      const expanded = along(expansion);
      if (expanded.loss < reflected.loss) next = expanded;
    } else if (reflected.loss >= points[dimensions - 1].loss) {
      next = along(contraction);
      if (next.loss >= worst.loss) {
        for (let i = 1; i <= dimensions; i++) {
          const values = points[i].values.map((value, j) => (value + best.values[j]) / 2);
          points[i] = { values, loss: loss(values) };
        }
        continue;
      }
    }
    points[dimensions] = next;
  }
  points.sort((a, b) => a.loss - b.loss);
  return points[0];
}

/**
 * The values with the least loss that were found, inside the bounds of each parameter.
 * @param loss finite inside the bounds.
 * @param most looks at it, about; as many as it takes unless given
 */
export function minimise(
  parameters: readonly FitParameter[],
  loss: (values: readonly number[]) => number,
  most: number = Number.POSITIVE_INFINITY,
): Minimum {
  let looks = 0;
  const bounded = (values: readonly number[]): number => {
    const inside = values.every((value, i) => value >= parameters[i].min && value <= parameters[i].max);
    if (!inside || looks >= most) return Infinity;
    looks++;
    return loss(values);
  };
  let best: Minimum = { values: parameters.map(({ start }) => start), loss: Infinity };
  for (let restart = 0; restart < 4; restart++) {
    const found = descend(bounded, simplexFrom(best.values, parameters), 400 * parameters.length);
    const gained = best.loss - found.loss;
    best = found.loss < best.loss ? found : best;
    if (gained <= 1e-9) break;
  }
  return best;
}

// How far predictions are from measurements: mean absolute percentage error, bias and worst case, in all and
// by group.

export interface StepPrediction {
  readonly predictedUs: number;
  readonly measuredUs: number;
}

export interface Score {
  readonly count: number;
  /** Mean of |predicted / measured - 1|, in percent. */
  readonly mapePercent: number;
  /** Mean of predicted / measured - 1, in percent; positive is too slow. */
  readonly biasPercent: number;
  readonly worstPercent: number;
}

export function scoreOf(predictions: readonly StepPrediction[]): Score {
  let [absolute, signed, worst] = [0, 0, 0];
  for (const { predictedUs, measuredUs } of predictions) {
    const error = predictedUs / measuredUs - 1;
    absolute += Math.abs(error);
    signed += error;
    worst = Math.max(worst, Math.abs(error));
  }
  const n = Math.max(1, predictions.length);
  return {
    count: predictions.length,
    mapePercent: (100 * absolute) / n,
    biasPercent: (100 * signed) / n,
    worstPercent: 100 * worst,
  };
}

/** Scores of the groups that `key` makes, in the order in which they first occur. */
export function scoresBy<T extends StepPrediction>(
  predictions: readonly T[],
  key: (prediction: T) => string,
): ReadonlyMap<string, Score> {
  checkInputs({ predictions, key }, { predictions: is.array(), key: is.func() });
  const groups = new Map<string, T[]>();
  for (const prediction of predictions) {
    const name = key(prediction);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [prediction]);
    else group.push(prediction);
  }
  return new Map([...groups].map(([name, group]) => [name, scoreOf(group)]));
}

/** The main work of a step, by its new prompt tokens. */
const regimes = ['decode', 'small prefill', 'large prefill'] as const;
type Regime = (typeof regimes)[number];

/** Tokens from which on a prefill counts as large. */
const largePrefillTokens = 128;

export function regimeOf(prefillTokens: number): Regime {
  if (prefillTokens === 0) return 'decode';
  return prefillTokens < largePrefillTokens ? 'small prefill' : 'large prefill';
}
