/** Gaps of clients that misbehave, over the gaps of their arrival process. */

import type { ArrivalSampler, GoRandom } from '../../../random/index.ts';
import type { BehaviorSpec } from '../../spec/additions/index.ts';

/** After an arrival, now and then, a burst of more. */
class BurstyGaps implements ArrivalSampler {
  readonly #base: ArrivalSampler;
  readonly #burst: NonNullable<BehaviorSpec['burst']>;
  #left = 0;

  constructor(base: ArrivalSampler, burst: NonNullable<BehaviorSpec['burst']>) {
    this.#base = base;
    this.#burst = burst;
  }

  next(random: GoRandom): number {
    if (this.#left > 0) {
      this.#left--;
      return this.#burst.intervalUs;
    }
    const gapUs = this.#base.next(random);
    if (random.float64() < this.#burst.probability) this.#left = this.#burst.size;
    return gapUs;
  }
}

/** Groups of arrivals at multiples of a period: of clients with one period, all at the same moment. */
class SynchronisedGaps implements ArrivalSampler {
  readonly #everyUs: number;
  readonly #size: number;
  #given = 0;

  constructor({ everyUs, size }: NonNullable<BehaviorSpec['synchronised']>) {
    this.#everyUs = everyUs;
    this.#size = Math.min(size, everyUs);
  }

  next(): number {
    const within = this.#given++ % this.#size;
    return within === 0 ? this.#everyUs - (this.#given === 1 ? 0 : this.#size - 1) : 1;
  }
}

export function behavedGaps(base: ArrivalSampler, behavior: BehaviorSpec | undefined): ArrivalSampler {
  if (behavior?.synchronised !== undefined) return new SynchronisedGaps(behavior.synchronised);
  return behavior?.burst === undefined ? base : new BurstyGaps(base, behavior.burst);
}
