/**
 * How often blocks are used, as estimates that forget; for one block (`BlockUse`) and for all contents of a manager
 * (`UseTable`). Powers of one half are made by + - * / and comparisons alone, which every engine rounds alike;
 * Math.pow does not promise that.
 */

import { invariant, requirePositive } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';

/** 2 to the power of -x for x >= 0, within 1e-9 of the true value; 0 from x = 60 on. Falls as x grows. */
export function halved(x: number): number {
  if (!(x > 0)) return 1;
  if (x >= 60) return 0;
  const whole = Math.floor(x);
  const y = (x - whole) * Math.LN2;
  // Taylor series of e^-y for 0 <= y < ln 2; the first term left out is below y^11 / 11!
  let value = 1;
  for (let k = 10; k > 0; k--) value = 1 - (y / k) * value;
  for (let i = 0; i < whole; i++) value *= 0.5;
  return value;
}

// How often a block is used: every use adds 1 to a weight that halves with each half-life. The frequency is that
// weight over the time that it stands for:
//
//     weight(t) = sum over uses of 2^-((t - use) / halfLife)
//     time(t)   = integral of the same decay since the first use = halfLife / ln 2 * (1 - 2^-(age / halfLife))
//     frequency = weight / max(time, youth)
//
// So the frequency is right for a young block too, and falls by itself without uses; no pass has to visit the block.
// `youth` keeps the first use of a block from counting as an infinite frequency.

export interface UseRates {
  /** Microseconds after which a use counts half. */
  readonly halfLifeUs: number;
  /** Microseconds, at least, over which a frequency is taken. */
  readonly youthUs: number;
}

/** What was seen of a block's uses. Times are microseconds of the manager. */
export interface UseHistory {
  readonly uses: number;
  readonly firstUseUs: number;
  readonly lastUseUs: number;
  /** Uses per second as of `nowUs`, which is not before the last use; 0 for a block never used. */
  frequencyAt(nowUs: number): number;
}

/** The weight after `elapsedUs` without a use. */
function decayed(weight: number, elapsedUs: number, { halfLifeUs }: UseRates): number {
  return weight * halved(elapsedUs / halfLifeUs);
}

/** Uses per second: `weight` is as of the last use. */
function frequency(
  weight: number,
  firstUseUs: number,
  lastUseUs: number,
  nowUs: number,
  rates: UseRates,
): number {
  if (weight === 0) return 0;
  const now = Math.max(nowUs, lastUseUs);
  const { halfLifeUs, youthUs } = rates;
  const seenUs = (halfLifeUs / Math.LN2) * (1 - halved((now - firstUseUs) / halfLifeUs));
  return (1e6 * decayed(weight, now - lastUseUs, rates)) / Math.max(seenUs, youthUs);
}

/** The history of one block. */
export class BlockUse implements UseHistory {
  readonly #rates: UseRates;
  uses = 0;
  firstUseUs = 0;
  lastUseUs = 0;
  #weight = 0;

  constructor(rates: UseRates) {
    this.#rates = rates;
  }

  /** Counts a use. A time before the last use counts as the last use's. */
  used(nowUs: number): void {
    const now = this.uses === 0 ? nowUs : Math.max(nowUs, this.lastUseUs);
    if (this.uses === 0) this.firstUseUs = now;
    this.#weight = decayed(this.#weight, now - this.lastUseUs, this.#rates) + 1;
    this.lastUseUs = now;
    this.uses++;
  }

  frequencyAt(nowUs: number): number {
    return frequency(this.#weight, this.firstUseUs, this.lastUseUs, nowUs, this.#rates);
  }
}

// The same histories for all contents of a manager, in typed arrays: a use costs a few writes and makes no
// garbage. A content's row is cleared when the manager forgets it.

export const HALF_LIFE_US_DEFAULT = 20_000_000;
/** Microseconds: a single use counts at first as 0.2 a second, twice the notes' threshold of a warm block. */
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

  /** The history as it is now: valid until the content is used again or forgotten. */
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
