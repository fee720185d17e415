/** Prompt lengths of clients that send oversized ones, or longer ones in bursts. */

import type { GoRandom, LengthSampler } from '../../../random/index.ts';
import type { TrafficSpec } from '../../spec/types.ts';
import { BurstFactor } from './burstFactor.ts';

/** Whether this prompt is an oversized one, drawn only of clients that send such: its tokens, else undefined. */
export function oversizedTokens(spec: Pick<TrafficSpec, 'behavior'>, random: GoRandom): number | undefined {
  const oversized = spec.behavior?.oversized;
  return oversized !== undefined && random.float64() < oversized.share ? oversized.tokens : undefined;
}

export class PromptLengths implements LengthSampler {
  readonly #base: LengthSampler;
  readonly #spec: Pick<TrafficSpec, 'behavior' | 'correlation'>;
  readonly #burst: BurstFactor;
  #factor = 1;

  constructor(base: LengthSampler, spec: Pick<TrafficSpec, 'behavior' | 'correlation'>) {
    this.#base = base;
    this.#spec = spec;
    this.#burst = new BurstFactor(spec.correlation?.burstSize ?? 0);
  }

  /** The prompts from here on come so long after those before. */
  after(gapUs: number): void {
    this.#factor = this.#burst.after(gapUs);
  }

  next(random: GoRandom): number {
    const oversized = oversizedTokens(this.#spec, random);
    if (oversized !== undefined) return oversized;
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
