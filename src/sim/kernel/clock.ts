/**
 * Virtual time in integer microseconds. It never goes back, and nothing under `src/sim` knows another time.
 * Upstream's "no horizon" is the largest 64-bit integer; here that, and everything else that a double cannot
 * hold exactly, is Infinity, which compares as it should.
 */

import { invariant, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';

/** The horizon of a simulation that has none. */
export const NO_HORIZON: number = Infinity;

export class VirtualClock {
  #nowUs: number;

  constructor(startUs: number = 0) {
    this.#nowUs = startUs;
  }

  get nowUs(): number {
    return this.#nowUs;
  }

  /** Moves to `timeUs`, an integer of at least the present time. */
  advanceTo(timeUs: number): void {
    invariant(Number.isSafeInteger(timeUs) && timeUs >= this.#nowUs, 'virtual time does not go back');
    this.#nowUs = timeUs;
  }
}

/**
 * A 64-bit tick count as ticks here: exact up to 2^53 - 1, Infinity from there on.
 * @throws {TierKVError} TKV_CONFIG for a negative value.
 */
export function horizonFromInt64(field: string, ticks: bigint): number {
  checkInputs({ field, ticks }, { field: is.text(), ticks: is.bigint() });
  if (ticks < 0n) {
    throw new TierKVError(
      'TKV_CONFIG',
      `${field} is ${ticks}, not a time. Set it to microseconds from 0 on`,
      { field },
    );
  }
  return ticks > BigInt(Number.MAX_SAFE_INTEGER) ? NO_HORIZON : Number(ticks);
}
