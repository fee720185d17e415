/**
 * How far predictions are from measurements: mean absolute percentage error, bias and worst case, in all and
 * by group.
 */

export interface Prediction {
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

export function scoreOf(predictions: readonly Prediction[]): Score {
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
export function scoresBy<T extends Prediction>(
  predictions: readonly T[],
  key: (prediction: T) => string,
): ReadonlyMap<string, Score> {
  const groups = new Map<string, T[]>();
  for (const prediction of predictions) {
    const name = key(prediction);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [prediction]);
    else group.push(prediction);
  }
  return new Map([...groups].map(([name, group]) => [name, scoreOf(group)]));
}

/** What a step mostly does, by its new prompt tokens. */
export const regimes = ['decode', 'small prefill', 'large prefill'] as const;
export type Regime = (typeof regimes)[number];

/** Tokens from which on a prefill counts as large. */
export const largePrefillTokens = 128;

export function regimeOf(prefillTokens: number): Regime {
  if (prefillTokens === 0) return 'decode';
  return prefillTokens < largePrefillTokens ? 'small prefill' : 'large prefill';
}
