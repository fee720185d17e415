/**
 * The same histories for all contents of a manager, in typed arrays: a use costs a few writes and makes no
 * garbage. A content's row is cleared when the manager forgets it.
 */

import { invariant, requirePositive } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';
import { decayed, frequency, type UseHistory, type UseRates } from './useHistory.ts';

export const HALF_LIFE_US_DEFAULT = 20_000_000;
/** A single use is twice the notes' threshold of a warm block, 0.1 a second, at first. */
export const YOUTH_US_DEFAULT = 5_000_000;

/** @throws TKV_CONFIG for a time that is not positive */
export function useRates(
  halfLifeUs: number = HALF_LIFE_US_DEFAULT,
  youthUs: number = YOUTH_US_DEFAULT,
): UseRates {
  return {
    halfLifeUs: requirePositive('halfLifeUs', halfLifeUs),
    youthUs: requirePositive('youthUs', youthUs),
  };
}

export class UseTable {
  readonly #rates: UseRates;
  readonly #uses: Float64Array;
  readonly #firstUs: Float64Array;
  readonly #lastUs: Float64Array;
  readonly #weight: Float64Array;

  constructor(contents: number, rates: UseRates) {
    this.#rates = rates;
    this.#uses = new Float64Array(contents);
    this.#firstUs = new Float64Array(contents);
    this.#lastUs = new Float64Array(contents);
    this.#weight = new Float64Array(contents);
  }

  used(content: number, nowUs: number): void {
    if (this.#uses[content]++ === 0) this.#firstUs[content] = nowUs;
    this.#weight[content] = 1 + decayed(this.#weight[content], nowUs - this.#lastUs[content], this.#rates);
    this.#lastUs[content] = nowUs;
  }

  forget(content: number): void {
    this.#uses[content] = 0;
    this.#weight[content] = 0;
  }

  frequencyAt(content: number, nowUs: number): number {
    return frequency(
      this.#weight[content],
      this.#firstUs[content],
      this.#lastUs[content],
      nowUs,
      this.#rates,
    );
  }

  lastUseUs(content: number): number {
    return this.#lastUs[content];
  }

  /** The history as it is now: good until the content is used again or forgotten. */
  of(content: number): UseHistory {
    invariant(content >= 0 && content < this.#uses.length, 'a history of a content that there is');
    return {
      uses: this.#uses[content],
      firstUseUs: this.#firstUs[content],
      lastUseUs: this.#lastUs[content],
      frequencyAt: (nowUs) => this.frequencyAt(content, nowUs),
    };
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#uses);
    visitor.array(this.#firstUs);
    visitor.array(this.#lastUs);
    visitor.array(this.#weight);
  }
}
