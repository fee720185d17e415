/**
 * Models of time without physics, as regressions on what a batch holds: `linear`, and `blackbox` with fewer
 * terms.
 */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { type BatchSums, type LatencyModel, type StepPart, toStepTicks, toTicks } from './latencyModel.ts';

// `linear`: with its first three coefficients it is the regression that upstream once had (constant, prompt
// tokens, generated tokens); two more follow context and attention.

/** The beta coefficients in their order, in µs each. */
export const linearTerms = ['step', 'prefillToken', 'decode', 'contextToken', 'causalPair'] as const;

/** The factors of the coefficients, in the order of `linearTerms`. */
export function linearFeatures(batch: BatchSums): number[] {
  return [
    1,
    batch.prefillTokens,
    batch.decodeRequests,
    batch.decodeContextTokens,
    batch.prefillCausalPairs2 / 2,
  ];
}

export interface LinearCoefficients {
  /** Queueing time, its slope in prompt tokens, overhead of an output token; µs. */
  readonly alpha: readonly number[];
  /** One to five of `linearTerms`; missing ones are 0. */
  readonly beta: readonly number[];
}

/** A latency model that is linear in the tokens of a step. */
export class Linear implements LatencyModel {
  readonly backend: string = 'linear';
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number = 0;
  readonly #alpha: readonly number[];
  readonly #beta: readonly number[];

  /**
   * @throws {TierKVError} TKV_CONFIG for a wrong number of coefficients, or one that is negative or not
   * finite.
   */
  constructor(coefficients: LinearCoefficients) {
    checkInputs(
      { coefficients },
      { coefficients: is.fields({ alpha: is.list(is.number()), beta: is.list(is.number()) }) },
    );
    const { alpha, beta } = coefficients;
    if (alpha.length !== 3) throw configError('alpha', `has ${alpha.length} values, not 3`, 'Give three.');
    if (beta.length < 1 || beta.length > linearTerms.length) {
      const most = linearTerms.length;
      throw configError('beta', `has ${beta.length} values`, `Give 1 to ${most}: ${linearTerms.join(', ')}.`);
    }
    for (const value of [...alpha, ...beta]) {
      if (Number.isFinite(value) && value >= 0) continue;
      throw configError('alpha and beta', `hold ${value}`, 'Use finite numbers of at least 0.');
    }
    this.#alpha = alpha;
    this.#beta = linearTerms.map((_, i) => beta[i] ?? 0);
    this.outputTokenProcessingUs = toTicks(alpha[2]);
  }

  stepTimeUs(batch: BatchSums): number {
    if (batch.requests === 0) return 1;
    const beta = this.#beta;
    return toStepTicks(
      beta[0] +
        beta[1] * batch.prefillTokens +
        beta[2] * batch.decodeRequests +
        beta[3] * batch.decodeContextTokens +
        beta[4] * (batch.prefillCausalPairs2 / 2),
    );
  }

  explain(batch: BatchSums): readonly StepPart[] {
    const features = linearFeatures(batch);
    return linearTerms.map((part, i) => ({ part, us: this.#beta[i] * features[i] }));
  }

  queueingTimeUs(promptTokens: number): number {
    return toTicks(this.#alpha[0] + this.#alpha[1] * promptTokens);
  }
}

// `blackbox`: three coefficients and no physics, the regression that router studies were made with: a step
// takes beta0 + beta1 x new prefill tokens + beta2 x decoding requests, truncated. `linear` is the same with
// room for two more terms.

const TERMS = 3;

export class Blackbox extends Linear {
  override readonly backend: string = 'blackbox';

  /**
   * @param coefficients alpha: queueing time, its slope in prompt tokens, overhead of an output token; beta:
   * a step, a prefill token, a decoding request; all in µs
   * @throws {TierKVError} TKV_CONFIG for another number than three of each, or one that is negative or not
   * finite
   */
  constructor(coefficients: LinearCoefficients) {
    const { beta } = coefficients;
    if (beta.length !== TERMS) {
      const remedy = 'Give a step, a prefill token and a decode; linear takes up to five.';
      throw configError('beta', `has ${beta.length} values, not ${TERMS}`, remedy);
    }
    super(coefficients);
  }
}
