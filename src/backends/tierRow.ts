/**
 * What a tier is to everything that goes over tiers: a row. Its store, its options and its links stand in its own files;
 * the registration (tierRows.ts) lists it; the list of names and its order are in src/runtime/tier/tier.ts.
 *
 * - A row is asked for its size first. A row without a size is off, and nothing of it is opened.
 * - `open` loads what the store needs, so that a tier that is off costs no module and no native library.
 * - The first row that is on is the top tier, where sequences read and write. Its store has to be a `TopTierStore`.
 */

import { TierKVError } from '../runtime/errors.ts';
import type { TierSize } from '../runtime/manager/config.ts';
import type { AdoptedBlock } from '../runtime/manager/loss.ts';
import type { PoolShape } from '../runtime/tables/slotPool.ts';
import type { TierName } from '../runtime/tier/tier.ts';
import type { TierStore } from '../runtime/tier/tierStore.ts';
import type { LinkLimits } from './engine/linkQueue.ts';
import type { StoreIdentity } from './file/record.ts';
import type { LiveDevice } from './webgpu/device.ts';
import type { DevicePool } from './webgpu/types.ts';

/** What the options give a tier. */
export interface TierWish extends Pick<TierSize, 'writeBudget'> {
  /** The option that says how large it is, for errors. */
  readonly field: string;
  readonly bytes: number;
}

export interface TierRequest<Options> {
  readonly options: Options;
  readonly shape: PoolShape;
  /** Sequences read and write here: nothing else verifies what arrives. */
  readonly isTop: boolean;
  /** What gives blocks their meaning, where they outlive the process; absent where nothing shall. */
  readonly identity?: StoreIdentity | undefined;
  readonly notice: (line: string) => void;
}

/** A device that holds the tier, and that can be lost. */
export interface TierDevice {
  /** Another one after `replace`; so is the pool. */
  readonly live: LiveDevice;
  readonly pool: DevicePool;
  /**
   * Puts a new device and an empty pool in the place of lost ones.
   * @throws TKV_DEVICE when no device is to be had, or it has not the memory; the lost ones stay in their place
   * @returns the lost ones, to be disposed of once nothing names them
   */
  replace(): Promise<AsyncDisposable>;
}

/** A tier whose blocks the next start finds. */
export interface DurableTier {
  /** Blocks that it holds since an earlier run, least recently used first. */
  records(): readonly AdoptedBlock[];
  /** Fulfilled when all blocks whose writing has ended are durable. @throws TKV_IO */
  save(): Promise<void>;
}

export interface OpenedTier extends AsyncDisposable {
  /** Where the bytes lie. Another one when the tier was replaced. */
  readonly store: TierStore;
  readonly device?: TierDevice;
  readonly durable?: DurableTier;
}

/** @typeParam Options what the configuration says of this tier, beside what it says of others */
export interface TierRow<Options> {
  readonly name: TierName;
  /** For tables and messages. */
  readonly title: string;
  /** Names of the tier's options in a configuration. */
  readonly optionNames: readonly string[];
  /** What the store calls its settings, in the names of the options. */
  readonly fieldNames: Readonly<Record<string, string>>;
  /** Whether sequences can read and write there. */
  readonly canBeTop: boolean;
  /** It lies on a device: a runtime that has it off has no device. */
  readonly isDevice?: boolean;
  /** Its slots are memory of this process: other tiers copy from and to it, so it is closed last. */
  readonly isHostMemory?: boolean;
  /** What may be under way on a link to or from it. Default: 64 MiB, in batches of 8. */
  readonly links?: LinkLimits;
  /** That every option is of its kind. @throws TKV_CONFIG with the field at fault */
  check(options: Options): void;
  /** undefined: the tier is off. */
  wish(options: Options): TierWish | undefined;
  /** That the machine can hold it, before anything is opened. @throws TKV_CONFIG naming `NAME.capacityBytes` */
  requireRoom?(bytes: number, options: Options): Promise<void>;
  /** @throws {TierKVError} when the store cannot be had; nothing stays open then */
  open(request: TierRequest<Options>): Promise<OpenedTier>;
}

/** What only a device has was asked of a runtime without one. */
export function noDevice(what: string): TierKVError {
  return new TierKVError(
    'TKV_STATE',
    `${what} needs a device, and the runtime was opened without hbmBytes. ` +
      'Use read and write, or readBlock and writeBlock, or give hbmBytes.',
    { field: 'hbmBytes' },
  );
}
