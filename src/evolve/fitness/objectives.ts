/**
 * What a search wants more of: metrics with a direction and a weight, measured against a baseline, and how
 * several become one score.
 *
 * The gain of a metric v over the baseline's b is 1 - v / b where less is better and v / b - 1 where more is,
 * so 0 is as good as the baseline, and a case with large figures weighs no more than one with small ones.
 */

export interface ObjectiveSpec {
  readonly name: string;
  /** Raw metric that it goes by. */
  readonly metric: string;
  readonly direction: 'min' | 'max';
  readonly weight: number;
}

/**
 * `weighted-sum`: gains times weights, over the sum of weights. `worst`: the lowest gain of all, for policies
 * that must not pay for one objective with another. `balanced`: the weighted harmonic mean of 1 + gain, less
 * 1, in which a loss counts for more than a gain of the same size.
 */
export const scalarisers = ['weighted-sum', 'worst', 'balanced'] as const;
export type Scalariser = (typeof scalarisers)[number];

/**
 * `weighted`: the scalariser decides. `slo-first`: cases whose SLO attainment is below the target score
 * below all others, by how far below they are; only then the scalariser decides.
 */
export const scoreModes = ['weighted', 'slo-first'] as const;
export type ScoreMode = (typeof scoreModes)[number];

export interface Scoring {
  readonly objectives: readonly ObjectiveSpec[];
  readonly scalariser: Scalariser;
  readonly mode: ScoreMode;
  /** Of the metric `slo_attainment`, for `slo-first`. */
  readonly attainmentTarget: number;
}

/** Gains stay within these bounds, so that one terrible case does not hide all others. */
export const GAIN_MIN = -10;
export const GAIN_MAX = 10;

/** Below the score of any bundle that ran. */
export const FAILED_SCORE = -100;

export function gainOf(value: number, base: number, direction: 'min' | 'max'): number {
  const gain =
    base > 0
      ? direction === 'min'
        ? 1 - value / base
        : value / base - 1
      : direction === 'min'
        ? -value
        : value;
  return Math.min(GAIN_MAX, Math.max(GAIN_MIN, gain)) + 0;
}

type Metrics = Readonly<Record<string, number>>;

export function gainsOf(metrics: Metrics, base: Metrics, objectives: readonly ObjectiveSpec[]): number[] {
  return objectives.map(({ metric, direction }) =>
    gainOf(metrics[metric] ?? 0, base[metric] ?? 0, direction),
  );
}

function scalar(gains: readonly number[], objectives: readonly ObjectiveSpec[], by: Scalariser): number {
  const weights = objectives.map(({ weight }) => weight);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  switch (by) {
    case 'weighted-sum':
      return gains.reduce((sum, gain, i) => sum + gain * weights[i], 0) / total;
    case 'worst':
      return Math.min(...gains);
    case 'balanced': {
      const factors = gains.map((gain) => Math.max(0, 1 + gain));
      return harmonic(factors, weights, total) - 1;
    }
  }
}

/** The weighted harmonic mean; 0 where any factor is. */
function harmonic(factors: readonly number[], weights: readonly number[], total: number): number {
  let sum = 0;
  for (const [i, factor] of factors.entries()) {
    if (factor === 0) return 0;
    sum += weights[i] / factor;
  }
  return total / sum;
}

/** The score of one case: 0 for the baseline itself, more is better. */
export function caseScore(metrics: Metrics, gains: readonly number[], scoring: Scoring): number {
  const { objectives, scalariser, mode, attainmentTarget } = scoring;
  const plain = scalar(gains, objectives, scalariser);
  if (mode === 'weighted') return plain;
  const missing = attainmentTarget - (metrics.slo_attainment ?? 0);
  return missing > 0 ? GAIN_MIN - missing : plain;
}
