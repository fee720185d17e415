/**
 * What holds the bytes of one tier, as the original notes ask for it: read, write, free space. Places are
 * named by slot and generation rather than by offset alone, so that bytes which another block wrote there
 * since are refused instead of read. Behind it are the stores that the transfers use: GPU memory through
 * WebGPU, locked host memory, preallocated files.
 */

import { hostDigest } from '../../backends/digest/index.ts';
import {
  type Digest,
  type KVManager,
  Outcome,
  outcomeNames,
  type StoreResult,
  TierKVError,
  type TierStore,
  type UnitPlace,
} from '../../runtime/index.ts';
import { type StorageTier, storageTiers } from './tierConfig.ts';

/** A unit's place, and what must lie there. */
export interface StoredUnit {
  readonly place: UnitPlace;
  /** Four words; zeros for a unit that is still written. */
  readonly key: Uint32Array;
  /** undefined for a unit that is still written: whatever was written last is right. */
  readonly digest: Digest | undefined;
}

export interface StorageBackend {
  readonly tier: StorageTier;
  /** Bytes of all its slots, those for blocks in flight included. */
  readonly capacityBytes: number;
  readonly freeBytes: number;
  /** What the store really got: adapter, locked memory, direct I/O. */
  describe(): Record<string, string | number | boolean>;
  /**
   * The bytes of whole units, each compared with its digest. @throws TKV_STALE when a place has moved on,
   * TKV_MISMATCH for other bytes than those that were stored, TKV_IO or TKV_DEVICE when they cannot be had
   */
  read(units: readonly StoredUnit[]): Promise<Uint8Array[]>;
  /** Puts whole units in place. @throws as `read` */
  write(units: readonly StoredUnit[], data: readonly Uint8Array[]): Promise<void>;
}

export class StoreBackend implements StorageBackend {
  readonly tier: StorageTier;
  readonly capacityBytes: number;
  readonly #store: () => TierStore;
  readonly #manager: KVManager;
  readonly #position: number;

  /** @param store asked for each time, since a device can be replaced */
  constructor(store: () => TierStore, manager: KVManager, position: number) {
    const { tier, shape } = manager.config.tiers[position];
    this.tier = storageTiers[Math.min(tier, storageTiers.length - 1)] as StorageTier;
    this.capacityBytes = shape.capacityBytes;
    this.#store = store;
    this.#manager = manager;
    this.#position = position;
  }

  get freeBytes(): number {
    const { residentBytes, leavingBytes } = this.#manager.usage(this.#position);
    return Math.max(0, this.capacityBytes - residentBytes - leavingBytes);
  }

  describe(): Record<string, string | number | boolean> {
    return this.#store().describe();
  }

  async read(units: readonly StoredUnit[]): Promise<Uint8Array[]> {
    const { unitBytes } = this.#manager.config;
    const items = units.map((unit) => itemOf(unit, new Uint8Array(unitBytes[unit.place.sizeClass])));
    const ends = await this.#store().read(items);
    ends.forEach((end, i) => {
      if (end.outcome !== Outcome.LOADED) throw this.#error('read', units[i], end);
      const { digest } = units[i];
      if (digest === undefined) return;
      const found = hostDigest(items[i].bytes);
      if (found.lo === digest.lo && found.hi === digest.hi) return;
      throw this.#error('read', units[i], {
        outcome: Outcome.CORRUPT,
        reason: 'its bytes do not have their digest',
      });
    });
    return items.map(({ bytes }) => bytes);
  }

  async write(units: readonly StoredUnit[], data: readonly Uint8Array[]): Promise<void> {
    const items = units.map((unit, i) => itemOf({ ...unit, digest: hostDigest(data[i]) }, data[i]));
    const ends = await this.#store().write(items);
    ends.forEach((end, i) => {
      if (end.outcome !== Outcome.LOADED) throw this.#error('written', units[i], end);
    });
  }

  #error(verb: 'read' | 'written', { place }: StoredUnit, end: StoreResult): TierKVError {
    const { outcome, reason, isStale } = end;
    const code = isStale
      ? 'TKV_STALE'
      : outcome === Outcome.CORRUPT
        ? 'TKV_MISMATCH'
        : outcome === Outcome.MISSING
          ? 'TKV_STATE'
          : this.tier === 'hbm'
            ? 'TKV_DEVICE'
            : 'TKV_IO';
    const remedy = isStale ? 'Look its place up again.' : 'Compute the block again.';
    const why = `${outcomeNames[outcome]} (${reason})`;
    const what = `slot ${place.slot} of ${this.tier} could not be ${verb}: ${why}`;
    return new TierKVError(code, `${what}. ${remedy}`, { field: 'blocks' });
  }
}

function itemOf({ place, key, digest }: StoredUnit, bytes: Uint8Array) {
  const { slot, sizeClass, generation } = place;
  return { slot, sizeClass, generation, key, digest: digest ?? { lo: 0, hi: 0 }, bytes, checkedLater: true };
}
