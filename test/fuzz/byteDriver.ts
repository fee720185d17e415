/**
 * A driver for fuzzing that moves real bytes, at the worst moments: a copy may happen when the job is issued
 * or as late as when it ends, jobs end in any order and with any outcome, and failed ones still write.
 */

import { digestBytes } from '../../src/runtime/digest.ts';
import { type KVManager, Outcome, type Transfer } from '../../src/runtime/index.ts';
import type { Random } from './random.ts';

interface Flight {
  readonly transfer: Transfer;
  /** What was read from the source when the job began; undefined when it reads at the end. */
  readonly early: Uint8Array | undefined;
  sourceLost: boolean;
}

const failures = [Outcome.MISSING, Outcome.CORRUPT, Outcome.TIMED_OUT, Outcome.REFUSED] as const;

export class ByteDriver {
  /** Bytes of each slot, by tier. */
  readonly #slots: Map<number, Uint8Array>[] = [new Map(), new Map(), new Map(), new Map()];
  readonly #flights: Flight[] = [];
  readonly #manager: KVManager;
  readonly #random: Random;

  constructor(manager: KVManager, random: Random) {
    this.#manager = manager;
    this.#random = random;
  }

  get inFlight(): number {
    return this.#flights.length;
  }

  /** The slot's bytes, grown to at least `bytes`. */
  bytes(tier: number, slot: number, length: number): Uint8Array {
    const known = this.#slots[tier].get(slot);
    if (known !== undefined && known.length >= length) return known.subarray(0, length);
    const fresh = new Uint8Array(length).fill(0xee);
    if (known !== undefined) fresh.set(known);
    this.#slots[tier].set(slot, fresh);
    return fresh;
  }

  takeJobs(): void {
    for (let job = this.#manager.nextJob(); job !== 0; job = this.#manager.nextJob()) {
      const transfer = this.#manager.transfer(job);
      const { source, bytes } = transfer;
      const reads = source !== null && this.#random.chance(0.5);
      const early = reads ? this.bytes(source.tier, source.slot, bytes).slice() : undefined;
      this.#flights.push({ transfer, early, sourceLost: false });
    }
  }

  lose(tier: number): void {
    for (const bytes of this.#slots[tier].values()) bytes.fill(0xdd);
    for (const flight of this.#flights) {
      if (flight.transfer.source?.tier === tier && flight.early === undefined) flight.sourceLost = true;
    }
  }

  /** Ends one job, picked at random. */
  completeOne(nowUs: number, faults: number): void {
    const [flight] = this.#flights.splice(this.#random.below(this.#flights.length), 1);
    if (flight === undefined) return;
    const { job, kind, source, target, bytes } = flight.transfer;
    const into = this.bytes(target.tier, target.slot, bytes);
    if (this.#random.chance(faults)) {
      if (kind !== 'seal') into.fill(0xcc);
      this.#manager.complete(job, this.#random.pick(failures), nowUs);
    } else if (flight.sourceLost) {
      this.#manager.complete(job, Outcome.MISSING, nowUs);
    } else if (source !== null) {
      into.set(flight.early ?? this.bytes(source.tier, source.slot, bytes));
      this.#manager.complete(job, Outcome.LOADED, nowUs);
    } else {
      const { lo, hi } = digestBytes(into.slice());
      this.#manager.complete(job, Outcome.LOADED, nowUs, lo, hi);
    }
  }
}
