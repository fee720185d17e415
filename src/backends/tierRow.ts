/**
 * A tier as a row, for all code that goes over tiers. Its store, its options and its links stand in its own files;
 * the registration (tierRows.ts) lists it; the list of names and its order are in src/runtime/tier/tier.ts.
 *
 * - A row is asked for its size first. A row without a size is off, and nothing of it is opened.
 * - `open` loads what the store needs, so that a tier that is off costs no module and no native library.
 * - A row of another environment, such as files of a browser's origin, is made like these: its file imports types alone and
 *   loads its store in `open`, so that a bundle has it without the stores of Node. `registerTier` adds it, or puts it in
 *   the place of the row of that name. A bundle that must not reach the rows of Node has a tierRows.ts of its own.
 * - The first row that is on is the top tier, where sequences read and write. Its store has to be a `TopTierStore`.
 */

import { TierKVError } from '../runtime/errors.ts';
import type { TierSize } from '../runtime/manager/config.ts';
import type { AdoptedBlock, NamedBlock } from '../runtime/manager/loss.ts';
import type { PoolShape } from '../runtime/tables/slotPool.ts';
import type { TierName } from '../runtime/tier/tier.ts';
import type { SlotPlace, TierStore } from '../runtime/tier/tierStore.ts';
import type { LinkLimits } from './engine/linkQueue.ts';
import type { StoreIdentity } from './file/record.ts';
import type { LiveDevice } from './webgpu/device.ts';
import type { DevicePool } from './webgpu/types.ts';

/** A tier's settings by the options. */
export interface TierWish extends Pick<TierSize, 'writeBudget'> {
  /** The option that says how large it is, for errors. */
  readonly field: string;
  readonly bytes: number;
}

/** Facts of a runtime for tiers whose blocks outlive the process or are shared. */
export interface TierFacts {
  /** The facts that give blocks their meaning. */
  readonly identity: StoreIdentity;
  /** The secret under which block keys are made: 16 to 32 bytes. */
  readonly secretKey: Uint8Array;
  /** Note to keep with the record of a block, by its key; absent where none is kept. */
  readonly noteOf?: ((key: Uint32Array) => Uint8Array | undefined) | undefined;
  /** Microseconds in which this number of bytes would be computed instead of loaded; undefined while not known. */
  readonly computeUs?: ((bytes: number) => number | undefined) | undefined;
}

/** Input of a row that opens its tier. */
export interface TierRequest<Options> {
  readonly options: Options;
  readonly shape: PoolShape;
  /** Sequences read and write here: nothing else verifies what arrives. */
  readonly isTop: boolean;
  /** Absent where no block shall outlive the process. */
  readonly facts?: TierFacts | undefined;
  readonly notice: (line: string) => void;
}

/** A device that holds the tier, and that can be lost. */
interface TierDevice {
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
  /**
   * Fulfilled when all blocks whose writing has ended are durable, and each was read back once since it was written.
   * @returns places that turned out not to hold what was written there: they hold nothing from now on
   * @throws TKV_IO
   */
  save(): Promise<readonly SlotPlace[]>;
  /** Notes that were kept with the blocks (`noteOf`). */
  readonly notes: TierNotes;
}

interface TierNotes {
  /** Why blocks of an earlier run cannot have notes; undefined where they can. */
  readonly missing: string | undefined;
  /**
   * The note of a block that `records` gave; undefined where nothing was kept, or its slot has another block by now.
   * @throws TKV_IO when it cannot be read in time
   */
  read(block: AdoptedBlock): Promise<Uint8Array | undefined>;
}

/** Keys [from, to) of one chain, four words each, and the size class of their blocks. */
export interface ChainPart {
  readonly keys: Uint32Array;
  readonly from: number;
  readonly to: number;
  readonly sizeClass: number;
}

/** A tier that others write too: what it holds is asked for when a request comes. */
export interface SharedTier {
  /** Blocks that it has of each chain, from `from` on up to the first gap. Empty where it does not answer in time. */
  lookup(chains: readonly ChainPart[]): Promise<readonly (readonly NamedBlock[])[]>;
  /** The place stands for the block of `key` from now on. */
  believe(place: SlotPlace, key: Uint32Array): void;
}

/** An open tier: its store, and what else it can do. */
export interface OpenedTier extends AsyncDisposable {
  /** Where the bytes lie. Another one when the tier was replaced. */
  readonly store: TierStore;
  readonly device?: TierDevice;
  readonly durable?: DurableTier;
  readonly shared?: SharedTier;
}

/**
 * How commands ask for a tier: one option says how large it is, and where it has to lie somewhere, another one says where.
 * Options are named without their dashes.
 */
export interface TierQuestion<Options> {
  /** Blocks, or bytes with a unit; 0 is off. */
  readonly size: { readonly option: string; readonly about: string };
  /** Without it the tier needs no place. */
  readonly place?: {
    readonly option: string;
    readonly about: string;
    /** A temporary one is made where none is named. The place of another kind has to be named, or the tier is off. */
    readonly isDirectory: boolean;
  };
  /** Options with which the row is opened. @param place empty for a tier without one */
  options(bytes: number, place: string): Options;
}

/**
 * A tier as a row: its name and options, and how it is opened.
 * @typeParam Options what the configuration says of this tier, beside what it says of others
 */
export interface TierRow<Options> {
  readonly name: TierName;
  /** For tables and messages. */
  readonly title: string;
  /** Names of the tier's options in a configuration. */
  readonly optionNames: readonly string[];
  /** The store's names of its settings, in the names of the options. */
  readonly fieldNames: Readonly<Record<string, string>>;
  /** Whether sequences can read and write there. */
  readonly canBeTop: boolean;
  /** It lies on a device: a runtime that has it off has no device. */
  readonly isDevice?: boolean;
  /** Others find what it holds: by default the tiers above it write their blocks down soon (`eager`). */
  readonly isShared?: boolean;
  /** Its slots are memory of this process: other tiers copy from and to it, so it is closed last. */
  readonly isHostMemory?: boolean;
  /** Limits of what may be under way on a link to or from it. Default: 64 MiB, in batches of 8. */
  readonly links?: LinkLimits;
  /** Absent: commands that take the sizes of tiers do not ask for this one. */
  readonly asked?: TierQuestion<Options>;
  /** That every option is of its kind. @throws TKV_CONFIG with the field at fault */
  check(options: Options): void;
  /** undefined: the tier is off. */
  wish(options: Options): TierWish | undefined;
  /**
   * Bytes that this number of pages takes of the tier's size, where headers, padding and indexes count against it too. More pages take
   * more. Default: the pages alone.
   */
  bytesOf?(pages: number, pageBytes: number, unitBytes: readonly number[]): number;
  /** That the machine can hold it, before anything is opened. @throws TKV_CONFIG naming `NAME.capacityBytes` */
  requireRoom?(bytes: number, options: Options): Promise<void>;
  /** @throws {TierKVError} when the store cannot be had; nothing stays open then */
  open(request: TierRequest<Options>): Promise<OpenedTier>;
}

/** Bytes of pages for which a tier of the row has room within `bytes`; all of them where nothing else takes room there. */
export function roomWithin(
  row: Pick<TierRow<never>, 'bytesOf'>,
  bytes: number,
  pageBytes: number,
  unitBytes: readonly number[],
): number {
  if (row.bytesOf === undefined) return bytes;
  let pages = 0;
  let most = Math.floor(bytes / pageBytes);
  while (pages < most) {
    const middle = pages + Math.ceil((most - pages) / 2);
    if (row.bytesOf(middle, pageBytes, unitBytes) <= bytes) pages = middle;
    else most = middle - 1;
  }
  return pages * pageBytes;
}

/** The error of a call that needs a device, to a runtime without one. */
export function noDevice(what: string): TierKVError {
  return new TierKVError(
    'TKV_STATE',
    `${what} needs a device, and the runtime was opened without hbmBytes. ` +
      'Use read and write, or readBlock and writeBlock, or give hbmBytes.',
    { field: 'hbmBytes' },
  );
}
