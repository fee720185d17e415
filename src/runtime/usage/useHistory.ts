/**
 * How often a block is used, as an estimate that forgets: every use adds 1 to a weight that halves with each
 * half-life. The frequency is that weight over the time that it stands for:
 *
 *     weight(t) = sum over uses of 2^-((t - use) / halfLife)
 *     time(t)   = integral of the same decay since the first use = halfLife / ln 2 * (1 - 2^-(age /
 *     halfLife))
 *     frequency = weight / max(time, youth)
 *
 * So it is right for a young block too, and a block that is used no more cools down by itself: nobody has to
 * touch it for that. `youth` keeps the first use of a block from counting as an infinite frequency.
 */

import { halved } from './decay.ts';

export interface UseRates {
  /** After so many microseconds a use counts half. */
  readonly halfLifeUs: number;
  /** A frequency is taken over at least so many microseconds. */
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
export function decayed(weight: number, elapsedUs: number, { halfLifeUs }: UseRates): number {
  return weight * halved(elapsedUs / halfLifeUs);
}

/** Uses per second: `weight` is as of the last use. */
export function frequency(
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

  /** The block is used. A time before the last use counts as that of the last use. */
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
