/**
 * Token lengths. A sampler returns an integer of at least 1 (empirical keys and an equal min and max are
 * returned as they stand), and consumes the words that upstream's sampler of the same name consumes.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import { exp, pow, roundHalfAway } from '../elementary.ts';
import type { GoRandom } from '../streams/index.ts';

/** A length distribution with its parameters, as a spec writes it; validated by the spec reader. */
export type LengthSpec =
  | { type: 'gaussian'; mean: number; std_dev: number; min: number; max: number }
  | { type: 'exponential'; mean: number; min?: number; max?: number }
  | { type: 'lognormal'; mu: number; sigma: number; min?: number; max?: number }
  | { type: 'pareto_lognormal'; alpha: number; xm: number; mu: number; sigma: number; mix_weight: number }
  | { type: 'empirical'; bins: ReadonlyArray<readonly [tokens: number, weight: number]> }
  | { type: 'constant'; value: number };

export interface LengthSampler {
  next(random: GoRandom): number;
}

/** Longest request side that can be drawn; a longer one is a spec without a bound, not a request. */
export const MAX_LENGTH_TOKENS: number = 2 ** 31 - 1;

function requireLength(tokens: number): number {
  if (tokens <= MAX_LENGTH_TOKENS) return tokens;
  throw new TierKVError(
    'TKV_INPUT',
    `a length distribution drew ${tokens} tokens, more than ${MAX_LENGTH_TOKENS}. Give it a max, or ` +
      `a smaller sigma`,
  );
}

/**
 * Rounds to tokens, at least 1; what Go cannot hold in 64 bits becomes 1, as its conversion goes negative.
 */
function toTokens(value: number): number {
  const rounded = roundHalfAway(value);
  return rounded >= 1 && rounded < 2 ** 63 ? requireLength(rounded) : 1;
}

/** Rounds, then clamps to bounds that are 0 when absent. */
function toTokensWithin(value: number, min: number, max: number): number {
  if (!Number.isFinite(value)) return min > 0 ? min : 1;
  let tokens = roundHalfAway(value);
  if (tokens >= 2 ** 63) tokens = -(2 ** 63);
  if (min > 0 && tokens < min) tokens = min;
  if (max > 0 && tokens > max) tokens = max;
  return tokens < 1 ? 1 : requireLength(tokens);
}

function gaussian(spec: LengthSpec & { type: 'gaussian' }): LengthSampler {
  const { mean, std_dev: stdDev } = spec;
  const min = Math.trunc(spec.min);
  const max = Math.trunc(spec.max);
  if (min === max) return { next: () => min };
  return {
    next: (random) => toTokens(Math.min(max, Math.max(min, random.normFloat64() * stdDev + mean))),
  };
}

function empirical(spec: LengthSpec & { type: 'empirical' }): LengthSampler {
  const sorted = [...spec.bins].sort((a, b) => a[0] - b[0]);
  const total = sorted.reduce((sum, bin) => sum + bin[1], 0);
  const values: number[] = [];
  const cumulative: number[] = [];
  let reached = 0;
  for (const [tokens, weight] of sorted) {
    if (!(weight > 0)) continue;
    reached += weight / total;
    values.push(tokens);
    cumulative.push(reached);
  }
  if (values.length === 0) return { next: () => 1 };
  if (values.length === 1) return { next: () => values[0] };
  cumulative[cumulative.length - 1] = 1;
  return {
    next: (random) => {
      const u = random.float64();
      let low = 0;
      let high = cumulative.length;
      while (low < high) {
        const middle = (low + high) >>> 1;
        if (cumulative[middle] < u) low = middle + 1;
        else high = middle;
      }
      return values[Math.min(low, values.length - 1)];
    },
  };
}

function paretoLognormal(spec: LengthSpec & { type: 'pareto_lognormal' }): LengthSampler {
  return {
    next: (random) => {
      if (random.float64() < spec.mix_weight) {
        const u = random.float64() || 5e-324;
        return toTokens(spec.xm / pow(u, 1 / spec.alpha));
      }
      return toTokens(exp(spec.mu + spec.sigma * random.normFloat64()));
    },
  };
}

const made = new WeakMap<LengthSpec, LengthSampler>();

/**
 * The sampler of a distribution. Samplers hold no state, so one serves everybody who has the same
 * specification.
 */
export function lengthSampler(spec: LengthSpec): LengthSampler {
  let sampler = made.get(spec);
  if (sampler === undefined) made.set(spec, (sampler = makeSampler(spec)));
  return sampler;
}

function makeSampler(spec: LengthSpec): LengthSampler {
  switch (spec.type) {
    case 'gaussian':
      return gaussian(spec);
    case 'exponential': {
      const min = Math.trunc(spec.min ?? 0);
      const max = Math.trunc(spec.max ?? 0);
      return { next: (random) => toTokensWithin(random.expFloat64() * spec.mean, min, max) };
    }
    case 'lognormal': {
      const min = Math.trunc(spec.min ?? 0);
      const max = Math.trunc(spec.max ?? 0);
      return { next: (random) => toTokensWithin(exp(spec.mu + spec.sigma * random.normFloat64()), min, max) };
    }
    case 'pareto_lognormal':
      return paretoLognormal(spec);
    case 'empirical':
      return empirical(spec);
    case 'constant': {
      const tokens = Math.max(1, Math.trunc(spec.value));
      return { next: () => requireLength(tokens) };
    }
  }
}
