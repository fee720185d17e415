/**
 * Draws of a workload: inter-arrival times and token lengths. A sampler draws from the stream it is given
 * and from nothing else. Draw order and rounding (truncation) are upstream's, since its workloads are
 * defined by them.
 */

import { invariant, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { exp, gamma, log, pow, roundHalfAway } from './elementary.ts';
import type { GoRandom } from './goRand.ts';

// Inter-arrival times in integer microseconds, always at least 1; 0 means that a finite sampler has no
// more.

export type ArrivalProcess = 'poisson' | 'gamma' | 'weibull' | 'constant' | 'pareto' | 'periodic';

/** An arrival process as a spec writes it. `scale` is in microseconds. */
export interface ArrivalSpec {
  readonly process: ArrivalProcess;
  readonly cv?: number;
  readonly shape?: number;
  readonly scale?: number;
  /** For `periodic`: the share of the period within which an arrival varies, early and late together. */
  readonly jitter?: number;
}

export interface ArrivalSampler {
  /** The next gap in µs, at least 1; 0 when a finite sampler is exhausted. */
  next(random: GoRandom): number;
}

const SMALLEST_RATE_PER_US = 1e-15;
const SMALLEST_GAMMA_SHAPE = 0.01;
const SMALLEST_DOUBLE = 5e-324;

/** Truncation to a gap; a value beyond 64 bits becomes 1, as Go's conversion leaves a negative number. */
function toGapUs(value: number): number {
  return value >= 1 && value < 2 ** 63 ? Math.trunc(value) : 1;
}

class PoissonGaps implements ArrivalSampler {
  readonly #ratePerUs: number;
  constructor(ratePerUs: number) {
    this.#ratePerUs = ratePerUs;
  }
  next(random: GoRandom): number {
    return toGapUs(random.expFloat64() / this.#ratePerUs);
  }
}

class ConstantGaps implements ArrivalSampler {
  readonly #gapUs: number;
  constructor(gapUs: number) {
    this.#gapUs = gapUs;
  }
  next(): number {
    return this.#gapUs;
  }
}

class GammaGaps implements ArrivalSampler {
  readonly shape: number;
  readonly scale: number;
  constructor(shape: number, scale: number) {
    this.shape = shape;
    this.scale = scale;
  }
  next(random: GoRandom): number {
    return toGapUs(gammaVariate(random, this.shape, this.scale));
  }
}

class WeibullGaps implements ArrivalSampler {
  readonly shape: number;
  readonly scale: number;
  constructor(shape: number, scale: number) {
    this.shape = shape;
    this.scale = scale;
  }
  next(random: GoRandom): number {
    const u = random.float64() || SMALLEST_DOUBLE;
    return toGapUs(this.scale * pow(-log(u), 1 / this.shape));
  }
}

/** Many short gaps and a few very long ones: Pareto of a shape above 1. Not upstream's. */
class ParetoGaps implements ArrivalSampler {
  readonly #shape: number;
  readonly #leastUs: number;
  constructor(shape: number, meanUs: number) {
    this.#shape = shape;
    this.#leastUs = (meanUs * (shape - 1)) / shape;
  }
  next(random: GoRandom): number {
    const u = random.float64() || SMALLEST_DOUBLE;
    return toGapUs(this.#leastUs / pow(u, 1 / this.#shape));
  }
}

/** One arrival a period, each early or late by itself. Not upstream's. */
class PeriodicGaps implements ArrivalSampler {
  readonly #periodUs: number;
  readonly #jitter: number;
  #late = 0;
  constructor(periodUs: number, jitter: number) {
    this.#periodUs = periodUs;
    this.#jitter = jitter;
  }
  next(random: GoRandom): number {
    const late = this.#jitter === 0 ? 0 : this.#jitter * (random.float64() - 0.5);
    const gap = toGapUs(this.#periodUs * (1 + late - this.#late));
    this.#late = late;
    return gap;
  }
}

const PARETO_SHAPE = 1.5;

/**
 * A Gamma(shape, scale) variate: Marsaglia and Tsang (2000) for shape >= 1; below, a uniform U is drawn first
 * and the variate of shape + 1 multiplied by U^(1/shape).
 */
function gammaVariate(random: GoRandom, shape: number, scale: number): number {
  if (shape < 1) {
    const u = random.float64();
    return gammaVariate(random, shape + 1, scale) * pow(u, 1 / shape);
  }
  const d = shape - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    let x: number;
    let v: number;
    do {
      x = random.normFloat64();
      v = 1 + c * x;
    } while (!(v > 0));
    v = v * v * v;
    const u = random.float64();
    if (u < 1 - 0.0331 * (x * x) * (x * x)) return d * v * scale;
    if (log(u) < 0.5 * x * x + d * (1 - v + log(v))) return d * v * scale;
  }
}

/** The coefficient of variation of a Weibull distribution of shape k. */
function weibullCv(k: number): number {
  const g1 = gamma(1 + 1 / k);
  return Math.sqrt(gamma(1 + 2 / k) / (g1 * g1) - 1);
}

/** The Weibull shape with the given coefficient of variation, to 0.001 by bisection on [0.1, 100]. */
export function weibullShape(cv: number): number {
  let low = 0.1;
  let high = 100;
  for (let step = 0; step < 100; step++) {
    const middle = (low + high) / 2;
    const found = weibullCv(middle);
    if (Math.abs(found - cv) < 0.001) return middle;
    if (found > cv) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** The Weibull scale λ in µs at which a shape has the given mean gap. */
export function weibullScale(shape: number, meanUs: number): number {
  return meanUs / gamma(1 + 1 / shape);
}

/**
 * The sampler of a process at a rate in requests per µs. Explicit shape and scale win over the coefficient of
 * variation and carry their own rate; a gamma shape below 0.01 falls back to a Poisson process.
 */
export function arrivalSampler(spec: ArrivalSpec, ratePerUs: number): ArrivalSampler {
  const rate = Math.max(ratePerUs, SMALLEST_RATE_PER_US);
  const explicit = (spec.shape ?? 0) > 0 && (spec.scale ?? 0) > 0;
  const cv = spec.cv !== undefined && spec.cv > 0 ? spec.cv : 1;
  switch (spec.process) {
    case 'poisson':
      return new PoissonGaps(rate);
    case 'constant':
      return new ConstantGaps(toGapUs(1 / rate));
    case 'pareto':
      return new ParetoGaps(spec.shape ?? PARETO_SHAPE, 1 / rate);
    case 'periodic':
      return new PeriodicGaps(1 / rate, spec.jitter ?? 0);
    case 'gamma': {
      if (explicit) return new GammaGaps(spec.shape!, spec.scale!);
      const shape = 1 / (cv * cv);
      if (shape < SMALLEST_GAMMA_SHAPE) return new PoissonGaps(rate);
      return new GammaGaps(shape, (1 / rate) * cv * cv);
    }
    case 'weibull': {
      if (explicit) return new WeibullGaps(spec.shape!, spec.scale!);
      const shape = weibullShape(cv);
      return new WeibullGaps(shape, weibullScale(shape, 1 / rate));
    }
  }
}

/**
 * Exactly `count` gaps drawn at once: exponentials scaled so that they sum to `durationUs` before truncation.
 * The draws come from a stream of its own, so that they do not move the lengths drawn later.
 */
export function normalizedExponentialGaps(
  random: GoRandom,
  count: number,
  durationUs: number,
): ArrivalSampler & { readonly gapsUs: Float64Array } {
  checkInputs(
    { random, count, durationUs },
    { random: is.fields({ seek: is.func() }), count: is.number(), durationUs: is.number() },
  );
  invariant(count > 0 && durationUs >= count, 'normalized gaps need a duration of at least 1 µs a gap');
  const rate = count / durationUs;
  const gapsUs = new Float64Array(count);
  let sum = 0;
  for (let i = 0; i < count; i++) {
    gapsUs[i] = random.expFloat64() / rate;
    sum += gapsUs[i];
  }
  const factor = durationUs / sum;
  for (let i = 0; i < count; i++) gapsUs[i] = toGapUs(gapsUs[i] * factor);
  let used = 0;
  return { gapsUs, next: () => (used < count ? gapsUs[used++] : 0) };
}

// Token lengths. A sampler returns an integer of at least 1 (empirical keys and an equal min and max are
// returned as they stand), and consumes the words that upstream's sampler of the same name consumes.

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
const MAX_LENGTH_TOKENS: number = 2 ** 31 - 1;

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
 * The sampler of a distribution. Samplers hold no state, so one serves every client that has the same
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
