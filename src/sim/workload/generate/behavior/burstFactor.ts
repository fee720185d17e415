/**
 * How much longer a prompt is that comes soon after the one before: (mean gap / gap) to a power, within
 * bounds. The mean is over the gaps so far, the newest of which weigh most.
 */

import { elementary } from '../../../random/index.ts';

/** Most that a burst makes a prompt longer, and shorter. */
const FACTOR_MAX = 4;
/** Weight of a new gap in the mean of those before. */
const WEIGHT = 0.05;

export class BurstFactor {
  /** Of the gaps so far, 0 before the first. */
  meanGapUs = 0;
  readonly #exponent: number;

  constructor(exponent: number) {
    this.#exponent = exponent;
  }

  /** The factor of a prompt that comes so long after the one before, at least 1 µs. */
  after(gapUs: number): number {
    if (this.#exponent === 0) return 1;
    const gap = Math.max(1, gapUs);
    this.meanGapUs = this.meanGapUs === 0 ? gap : this.meanGapUs + WEIGHT * (gap - this.meanGapUs);
    const factor = elementary.pow(this.meanGapUs / gap, this.#exponent);
    return Math.min(FACTOR_MAX, Math.max(1 / FACTOR_MAX, factor));
  }
}
