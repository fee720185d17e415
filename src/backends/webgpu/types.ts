/// <reference types="@webgpu/types" preserve="true" />

/**
 * The words of the WebGPU backend that others type against: which adapter a device came from, and what an HBM pool offers
 * beyond the tier store contract. `openDevice` gives a `LiveDevice`, `HbmStore.open(liveDevice, shape)` gives a
 * `DevicePool` on it; the pool never outlives the device, and disposing of the pool leaves the device to its owner.
 */

import type { DeviceTierStore, SealItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import type { VerificationName } from './arrivals.ts';
import type { BoxPathName } from './boxes/boxPath.ts';
import type { BoxPlan } from './boxes/boxPlan.ts';
import type { UploadPathName } from './uploadPath.ts';
import type { UploadProfile } from './uploadProfile.ts';

/** How the Vulkan driver, or the platform's own backend, was found. */
export type AdapterSource =
  | 'platform'
  | 'VK_DRIVER_FILES'
  | 'VK_ICD_FILENAMES'
  | 'system-software'
  | 'npm-software'
  | 'TIERKV_ADAPTER'
  | 'embedder';

/** What every table and report shows of the adapter; a number measured where `software` is true is labelled so. */
export interface AdapterReport {
  readonly name: string;
  readonly vendor: string;
  readonly software: boolean;
  readonly source: AdapterSource;
}

export interface DeviceOptions {
  /**
   * `hardware`, `software`, the path of a Vulkan ICD manifest, or a part of the adapter's name. Default: the environment
   * variable TIERKV_ADAPTER, and without it the first that works of hardware, the user's driver, software.
   */
  readonly adapter?: string;
  /** Receives one line a person must see, such as that a software device is in use. Default: silence. */
  readonly notice?: (line: string) => void;
  /**
   * How this process waits for the device: `spin` looks in every turn of the event loop, and a core is busy meanwhile;
   * `sleep` does so for eight milliseconds, and then once a millisecond or when something else wakes the loop. Default `sleep`.
   */
  readonly wait?: 'spin' | 'sleep';
  /** Where the software device is unpacked. Default: `tierkv` in the user's cache folder. */
  readonly cacheDir?: string;
}

export interface HbmStoreOptions {
  /** Largest GPUBuffer of the pool, in bytes; the device's limits cap it. Default 1 GiB. */
  readonly slabBytesMax?: number;
  /**
   * Bytes of one staging buffer and how many there are, for each direction. Default 4 MiB, 8; on a software device up to 8 MiB,
   * 4, of which it uses as much as is fastest at present.
   */
  readonly stagingBytes?: number;
  readonly stagingBuffers?: number;
  /**
   * Whether, and how, what arrives is checked; without it, `write` trusts the way here. Default true: by the digest kernel,
   * or on a software device by the faster of kernel and readback.
   */
  readonly verifyWrites?: boolean | VerificationName;
  /** How bytes get to the device. Default: the faster one, measured once a device. */
  readonly uploadPath?: UploadPathName;
  /** How boxes of slots move: through kernels, or by one copy a run. Default: by the length and number of the runs. */
  readonly boxPath?: BoxPathName;
  /** What an earlier measurement on this adapter found; see `readUploadProfile`. Default: measured. */
  readonly profile?: UploadProfile;
  /** Label of the pool's GPU objects. Default `tierkv.hbm`. */
  readonly label?: string;
}

/** A place in the pool and the seed of the pattern (src/runtime/pattern.ts) that fills it. */
export interface PatternItem extends SealItem {
  readonly seedLo: number;
  readonly seedHi: number;
}

export interface MismatchResult extends StoreResult {
  /** Words of the slot that are not the pattern's; 0 when the outcome is not `loaded`. */
  readonly mismatchedWords: number;
}

/** One whole slot to another of the same size class. The source is named as a read names it, the target as a write. */
export interface CopyItem {
  readonly sizeClass: number;
  readonly fromSlot: number;
  readonly fromGeneration: number;
  readonly toSlot: number;
  readonly toGeneration: number;
}

/**
 * A part of a slot: the box of a plan, in what lies in the slot from its first byte on. A call may name a slot more than
 * once, with other boxes; those of one `writeBoxes` must not overlap.
 */
export interface BoxItem extends SealItem {
  readonly plan: BoxPlan;
  /** Packed bytes of the box, exactly `plan.boxBytes`: the source of a write, the destination of a read. */
  readonly bytes: Uint8Array;
}

/** Where a slot lies, for kernels and copies of the embedder's own. */
export interface SlotBuffer {
  readonly buffer: GPUBuffer;
  readonly offsetBytes: number;
  readonly sizeBytes: number;
}

/** An HBM pool: the tier store contract, and what replay, tests and embedders need of the device. */
export interface DevicePool extends DeviceTierStore {
  readonly adapter: AdapterReport;
  /** Fulfilled with the reason when the device is gone. Calls pending then, and later ones, end as `refused`. */
  readonly lost: Promise<string>;
  /** Generates the bytes of each slot on the device; the place takes the generation named. */
  fillPattern(items: readonly PatternItem[]): Promise<readonly StoreResult[]>;
  /** Compares each slot with its pattern on the device. */
  countMismatches(items: readonly PatternItem[]): Promise<readonly MismatchResult[]>;
  /** Copies whole slots within device memory. */
  copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]>;
  /**
   * Reads a box of each slot. Places are checked as by `read`: stale is refused, nothing there is missing, another size
   * class or a newer generation than lies there is corrupt. The bytes themselves are not verified, as by `read`.
   */
  readBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]>;
  /**
   * Changes a box of each slot and no other byte. For slots that a sequence still writes, and nobody else reads: the content
   * is another one afterwards, and whatever digest was known of it is void until `seal`. What arrived is not verified.
   *
   * A generation that lies in the slot keeps its other bytes. A newer one takes the slot, as with `write` and `seal`, and
   * reads find nothing there until `seal`. Stale is refused, another size class than lies there is corrupt.
   */
  writeBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]>;
  /** The buffer (STORAGE | COPY_SRC | COPY_DST) that holds the slot. Never destroy it; never hold it after the pool. */
  buffer(slot: number, sizeClass: number): SlotBuffer;
}
