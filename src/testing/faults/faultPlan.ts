/**
 * Which fault happens when, from a seed: the same seed and the same calls give the same faults. A rate is the
 * chance of a kind at each opportunity, an item of a call, or a call for what holds up whole calls.
 */

import { requireFraction } from '../../runtime/errors.ts';
import { optionNames, requireOptions } from '../../runtime/options.ts';
import { SeededRandom } from '../seededRandom.ts';
import { type FaultKind, type FaultyOp, faultKinds, itemKinds, type StoreKind } from './faultKinds.ts';

export interface FaultPlanOptions {
  readonly seed: number;
  /**
   * Chance by kind; kinds left out never happen. `deviceLost` is not drawn: whoever owns the device loses it.
   */
  readonly rates: Readonly<Partial<Record<FaultKind, number>>>;
  /** How long a call takes, at least and at most. Default 0: as long as the store itself. */
  readonly latencyUs?: readonly [number, number];
  /** How late a `lateAfterCancel` call ends, at least and at most. */
  readonly lateUs?: readonly [number, number];
  /** Most calls that may be stalled at a time, since each costs its slots. Default 2. */
  readonly stalledMax?: number;
}

export const faultPlanOptionsNames: readonly string[] = optionNames<FaultPlanOptions>({
  seed: true,
  rates: true,
  latencyUs: true,
  lateUs: true,
  stalledMax: true,
});

export class FaultPlan {
  readonly stalledMax: number;
  readonly #random: SeededRandom;
  readonly #rates: ReadonlyMap<FaultKind, number>;
  readonly #latencyUs: readonly [number, number];
  readonly #lateUs: readonly [number, number];
  #paused = false;

  /** @throws TKV_CONFIG for a rate outside [0, 1] */
  constructor(options: FaultPlanOptions) {
    requireOptions(options, faultPlanOptionsNames, 'options', 'TKV_CONFIG');
    requireOptions(options.rates, faultKinds, 'rates', 'TKV_CONFIG');
    this.#random = new SeededRandom(options.seed);
    this.#rates = new Map(
      faultKinds.map((kind) => [kind, requireFraction(`rates.${kind}`, options.rates[kind] ?? 0)]),
    );
    this.#latencyUs = options.latencyUs ?? [0, 0];
    this.#lateUs = options.lateUs ?? [0, 0];
    this.stalledMax = options.stalledMax ?? 2;
  }

  /** No more faults until `resume`; latencies stay. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
  }

  /** The fault of the next item, or null. */
  itemFault(store: StoreKind, op: FaultyOp): FaultKind | null {
    for (const kind of itemKinds[store][op] ?? []) if (this.#happens(kind)) return kind;
    return null;
  }

  /** What holds the next call up, or null. */
  callFault(): 'stalled' | 'lateAfterCancel' | null {
    if (this.#happens('stalled')) return 'stalled';
    return this.#happens('lateAfterCancel') ? 'lateAfterCancel' : null;
  }

  latencyUs(): number {
    return this.#between(this.#latencyUs);
  }

  lateUs(): number {
    return this.#between(this.#lateUs);
  }

  chance(share: number): boolean {
    return this.#random.chance(share);
  }

  below(limit: number): number {
    return this.#random.below(limit);
  }

  #happens(kind: FaultKind): boolean {
    const rate = this.#paused ? 0 : this.#rates.get(kind)!;
    return rate > 0 && this.#random.chance(rate);
  }

  #between([min, max]: readonly [number, number]): number {
    return max === 0 ? 0 : min + this.#random.below(max - min + 1);
  }
}
