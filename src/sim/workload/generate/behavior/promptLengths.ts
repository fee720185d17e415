/** Prompt lengths of clients that send oversized ones, or longer ones in bursts. */

import { elementary, type GoRandom, type LengthSampler } from '../../../random/index.ts';
import type { TrafficSpec } from '../../spec/types.ts';

/** Most that a burst makes a prompt longer, and shorter. */
const FACTOR_MAX = 4;
/** Weight of a new gap in the mean of those before. */
const WEIGHT = 0.05;

export class PromptLengths implements LengthSampler {
  readonly #base: LengthSampler;
  readonly #spec: Pick<TrafficSpec, 'behavior' | 'correlation'>;
  #meanGapUs = 0;
  #factor = 1;

  constructor(base: LengthSampler, spec: Pick<TrafficSpec, 'behavior' | 'correlation'>) {
    this.#base = base;
    this.#spec = spec;
  }

  /** The next prompt comes so long after the one before. */
  after(gapUs: number): void {
    const exponent = this.#spec.correlation?.burstSize ?? 0;
    if (exponent === 0) return;
    this.#meanGapUs = this.#meanGapUs === 0 ? gapUs : this.#meanGapUs + WEIGHT * (gapUs - this.#meanGapUs);
    const factor = elementary.pow(this.#meanGapUs / gapUs, exponent);
    this.#factor = Math.min(FACTOR_MAX, Math.max(1 / FACTOR_MAX, factor));
  }

  next(random: GoRandom): number {
    const oversized = this.#spec.behavior?.oversized;
    if (oversized !== undefined && random.float64() < oversized.share) return oversized.tokens;
    const tokens = this.#base.next(random);
    return this.#factor === 1 ? tokens : Math.max(1, Math.round(tokens * this.#factor));
  }
}

/** The base itself for clients that do neither. */
export function promptLengths(
  base: LengthSampler,
  spec: Pick<TrafficSpec, 'behavior' | 'correlation'>,
): LengthSampler {
  if (spec.behavior?.oversized === undefined && spec.correlation === undefined) return base;
  return new PromptLengths(base, spec);
}
