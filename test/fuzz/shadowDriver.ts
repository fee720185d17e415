/**
 * A driver for fuzzing that moves one number a slot instead of bytes, at the worst moments: a copy may happen
 * when the job is issued or as late as when it ends, jobs end in any order, with any outcome, and cancelled
 * ones still write. If the manager ever gives a slot away too early, a number ends up where another belongs.
 */

import type { KVManager } from '../../src/runtime/manager/manager.ts';
import type { Transfer } from '../../src/runtime/tables/jobTable.ts';
import { Outcome } from '../../src/runtime/tier/tier.ts';
import type { Random } from './random.ts';

interface Flight {
  transfer: Transfer;
  /** What was read from the source when the job began; undefined when it reads at the end. */
  early: number | undefined;
  /** The tier that it reads from was lost before it read. */
  sourceLost: boolean;
}

export class ShadowDriver {
  /** What lies in each slot, by tier. */
  readonly slots: Float64Array[];
  readonly #flights: Flight[] = [];
  readonly #manager: KVManager;
  readonly #random: Random;

  constructor(manager: KVManager, random: Random) {
    this.#manager = manager;
    this.#random = random;
    this.slots = [];
    for (const tier of manager.config.tiers)
      this.slots[tier.tier] = new Float64Array(tier.shape.slotLimit).fill(-1);
  }

  get inFlight(): number {
    return this.#flights.length;
  }

  takeJobs(nowUs: number): void {
    for (let job = this.#manager.nextJob(); job !== 0; job = this.#manager.nextJob()) {
      const transfer = this.#manager.transfer(job);
      if (this.#random.chance(0.1)) this.#manager.setDeadline(transfer.job, nowUs + this.#random.below(20));
      const source = transfer.source;
      const early =
        source !== null && this.#random.chance(0.5) ? this.slots[source.tier][source.slot] : undefined;
      this.#flights.push({ transfer, early, sourceLost: false });
    }
  }

  /** Nothing lies in the tier any more; what has not read from it yet finds nothing. */
  lose(tier: number): void {
    this.slots[tier].fill(-3);
    for (const flight of this.#flights) {
      if (flight.transfer.source?.tier === tier && flight.early === undefined) flight.sourceLost = true;
    }
  }

  /** Ends one job, picked at random. */
  completeOne(nowUs: number, faults: number): void {
    const [flight] = this.#flights.splice(this.#random.below(this.#flights.length), 1);
    if (flight === undefined) return;
    const { transfer } = flight;
    const target = this.slots[transfer.target.tier];
    if (this.#random.chance(faults)) {
      const failures = [
        Outcome.MISSING,
        Outcome.CORRUPT,
        Outcome.TIMED_OUT,
        Outcome.REFUSED,
        Outcome.CANCELLED,
      ];
      if (transfer.kind !== 'seal') target[transfer.target.slot] = -2;
      this.#manager.complete(transfer.job, this.#random.pick(failures), nowUs);
      return;
    }
    if (flight.sourceLost) {
      this.#manager.complete(transfer.job, Outcome.MISSING, nowUs);
    } else if (transfer.source !== null) {
      const arrived = flight.early ?? this.slots[transfer.source.tier][transfer.source.slot];
      target[transfer.target.slot] = arrived;
      this.#manager.complete(transfer.job, Outcome.LOADED, nowUs);
    } else {
      const value = target[transfer.target.slot];
      const diverges = this.#random.chance(0.1) ? 1 : 0;
      this.#manager.complete(transfer.job, Outcome.LOADED, nowUs, value, diverges);
    }
  }
}
