/**
 * `blackbox`: three coefficients and no physics, the regression that router studies were made with: a step
 * takes beta0 + beta1 x new prefill tokens + beta2 x decoding requests, truncated. `linear` is the same with
 * room for two more terms.
 */

import { configError } from '../../../runtime/errors.ts';
import { Linear, type LinearCoefficients } from './linear.ts';

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
