/// <reference types="@webgpu/types" preserve="true" />

/**
 * The words of the WebGPU backend that others type against: which adapter a device came from, and what an HBM
 * pool offers beyond the contract of a tier store. `openDevice` gives a `LiveDevice`,
 * `HbmStore.open(liveDevice, shape)` gives a `DevicePool` on it. The pool never outlives the device.
 * Disposing of the pool leaves the device to its owner.
 */

import { configError } from '../../runtime/errors.ts';
import {
  blockBox,
  boxBytes,
  boxStrides,
  contains,
  type KVBox,
  requireBox,
  rowOffsetBytes,
} from '../../runtime/geometry/box.ts';
import type { KVLayout } from '../../runtime/geometry/layout.ts';
import { countRuns } from '../../runtime/geometry/runs.ts';
import { optionNames } from '../../runtime/options.ts';
import type { DeviceTierStore, SealItem, StoreResult } from '../../runtime/tier/tierStore.ts';

/** How the Vulkan driver, or the platform's own backend, was found. */
export type AdapterSource =
  | 'platform'
  | 'VK_DRIVER_FILES'
  | 'VK_ICD_FILENAMES'
  | 'system-software'
  | 'npm-software'
  | 'TIERKV_ADAPTER'
  | 'embedder';

/** What tables and reports show of the adapter; numbers measured where it is `software` are labelled so. */
export interface AdapterReport {
  readonly name: string;
  readonly vendor: string;
  readonly software: boolean;
  readonly source: AdapterSource;
}

export interface DeviceOptions {
  /**
   * `hardware`, `software`, the path of a Vulkan ICD manifest, or a part of the adapter's name. Default: the
   * environment variable TIERKV_ADAPTER, and without it the first that works of hardware, the user's driver,
   * software.
   */
  readonly adapter?: string;
  /** Receives one line a person must see, such as that a software device is in use. Default: silence. */
  readonly notice?: (line: string) => void;
  /**
   * How this process waits for the device: `spin` looks in every turn of the event loop, and a core is busy
   * meanwhile; `sleep` does so for eight milliseconds, and then once a millisecond or when something else
   * wakes the loop. Default `sleep`.
   */
  readonly wait?: 'spin' | 'sleep';
  /** Where the software device is unpacked. Default: `tierkv` in the user's cache folder. */
  readonly cacheDir?: string;
}

export const deviceOptionsNames: readonly string[] = optionNames<DeviceOptions>({
  adapter: true,
  notice: true,
  wait: true,
  cacheDir: true,
});

/** Who digests bytes that arrived on the device: a kernel there, or the host after it has read them back. */
export type Verification = 'kernel' | 'readback';

export type BoxPath = 'kernel' | 'copies';

export interface HbmStoreOptions {
  /** Largest GPUBuffer of the pool, in bytes; the device's limits cap it. Default 1 GiB. */
  readonly slabBytesMax?: number;
  /** Bytes of one mapped buffer of each direction; the pool and the device cap it. Default 4 MiB. */
  readonly stagingBytes?: number;
  /** How many mapped buffers each direction has. Default 8. */
  readonly stagingBuffers?: number;
  /**
   * Whether, and how, what `write` brings is checked. False: it is not. Default true: by the digest kernel,
   * and on a software device by readback, since its kernels run on the host's cores and are slower than the
   * host's own digest.
   */
  readonly verifyWrites?: boolean | Verification;
  /** How boxes move: through kernels, or by one copy a run. Default: by the length and number of the runs. */
  readonly boxPath?: BoxPath;
  /** Label of the pool's GPU objects. Default `tierkv.hbm`. */
  readonly label?: string;
}

export const hbmStoreOptionsNames: readonly string[] = optionNames<HbmStoreOptions>({
  slabBytesMax: true,
  stagingBytes: true,
  stagingBuffers: true,
  verifyWrites: true,
  boxPath: true,
  label: true,
});

/** A place in the pool and the seed of the pattern (src/runtime/pattern.ts) that fills it. */
export interface PatternItem extends SealItem {
  readonly seedLo: number;
  readonly seedHi: number;
}

export interface MismatchResult extends StoreResult {
  /** Words of the slot that are not the pattern's; 0 when the outcome is not `loaded`. */
  readonly mismatchedWords: number;
}

/**
 * A part of a slot: the box of a plan, in what lies in the slot from its first byte on. A call may name a
 * slot more than once, with other boxes; those of one `writeBoxes` must not overlap.
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

/** Where a slot lies, as a block table names it: the index of a slab and the offset in it. */
export interface SlotLocation {
  readonly slab: number;
  readonly offsetBytes: number;
}

/**
 * An HBM pool: the contract of a device's tier store, and what replay, tests and embedders need of the
 * device.
 *
 * `seal`, `fillPattern`, `clear` and the targets of `copy` take effect in the order of the calls, also on one
 * slot, without waiting for one another. Every other call on a slot that one of them works on is refused, as
 * is each call on a slot that `write` or `writeBoxes` works on. `read`, `readBoxes` and `countMismatches` may
 * share a slot; the sources of `copy` go with everything but a write.
 */
export interface DevicePool extends DeviceTierStore {
  readonly adapter: AdapterReport;
  /** Fulfilled with the reason when the device is gone; calls under way and later ones end as `refused`. */
  readonly lost: Promise<string>;
  /**
   * The buffers (STORAGE | COPY_SRC | COPY_DST) that hold all slots, for kernels that read block tables.
   * Never destroy one, and never use one after the pool is disposed of.
   */
  readonly slabs: readonly GPUBuffer[];
  /** Generates the bytes of each slot on the device; the place takes the generation named. */
  fillPattern(items: readonly PatternItem[]): Promise<readonly StoreResult[]>;
  /** Compares each slot with its pattern on the device. */
  countMismatches(items: readonly PatternItem[]): Promise<readonly MismatchResult[]>;
  /**
   * Reads a box of each slot. Places are checked as by `read`: stale is refused, nothing there is missing,
   * another size class or a newer generation than lies there is corrupt. The bytes themselves are not
   * verified, as by `read`.
   */
  readBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]>;
  /**
   * Changes a box of each slot and no other byte. For slots that a sequence still writes, and nobody else
   * reads: the content is another one afterwards, and whatever digest was known of it is void until `seal`.
   * What arrived is not verified.
   *
   * A generation that lies in the slot keeps its other bytes. A newer one takes the slot, as with `write` and
   * `seal`, and reads find nothing there until `seal`. Stale is refused, another size class than lies there
   * is corrupt.
   */
  writeBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]>;
  /** The buffer that holds the slot, and where in it. @throws when the pool has no such slot */
  buffer(slot: number, sizeClass: number): SlotBuffer;
  /** Which of `slabs` holds the slot, and where in it. @throws when the pool has no such slot */
  locate(slot: number, sizeClass: number): SlotLocation;
}

// A box as a regular pattern of runs in the unit that contains it, most often a block. That pattern is the
// same in every block, so a plan is made once and serves any number of slots:
//
//     | . . r0 r0 . . r1 r1 . . | . . r2 r2 . . r3 r3 . . |
//           ^                         runsPerLayer = 2; r1 lies runStrideBytes after r0, r2 layerStrideBytes
//           firstOffsetBytes
//
// The packed bytes of the box are its runs one behind the other: `[layer][head][K,V][token][headDim]` over
// its own ranges.

/** Made here alone, where it is checked that all runs lie in the container. */
export interface BoxPlan {
  /** Packed bytes of the box: what `bytes` of an item must be. */
  readonly boxBytes: number;
  /** Bytes of what contains the box: a slot must have as many. */
  readonly containerBytes: number;
  readonly runs: number;
  readonly runBytes: number;
  readonly firstOffsetBytes: number;
  readonly runsPerLayer: number;
  readonly runStrideBytes: number;
  readonly layerStrideBytes: number;
}

/**
 * @param box tokens count from the start of the container's sequence; within a block, from its first token
 * @param container what lies in the slots, from their first byte on: by default a block
 * @throws TKV_CONFIG when either box is empty or outside of the layout, or the container does not contain the
 * box
 */
export function boxPlan(layout: KVLayout, box: KVBox, container: KVBox = blockBox(layout, 0)): BoxPlan {
  requireBox(layout, box);
  requireBox(layout, container);
  if (!contains(container, box)) {
    throw configError('box', 'reaches out of its container', 'Intersect the two first.');
  }
  const runs = countRuns(box, container);
  const layers = box.layerEnd - box.layerStart;
  const { kvBytes, layerBytes } = boxStrides(layout, container);
  return Object.freeze({
    boxBytes: boxBytes(layout, box),
    containerBytes: boxBytes(layout, container),
    runs,
    runBytes: boxBytes(layout, box) / runs,
    firstOffsetBytes: rowOffsetBytes(layout, container, box.layerStart, box.headStart, 0, box.tokenStart),
    runsPerLayer: Math.max(1, runs / layers),
    runStrideBytes: kvBytes,
    layerStrideBytes: layerBytes,
  });
}

/** A whole slot of `slotBytes` bytes, as a box of one run. */
export function wholePlan(slotBytes: number): BoxPlan {
  return Object.freeze({
    boxBytes: slotBytes,
    containerBytes: slotBytes,
    runs: 1,
    runBytes: slotBytes,
    firstOffsetBytes: 0,
    runsPerLayer: 1,
    runStrideBytes: 0,
    layerStrideBytes: 0,
  });
}

/** Offset of run number `run` in the container. */
export function runOffsetBytes(plan: BoxPlan, run: number): number {
  const inLayer = run % plan.runsPerLayer;
  const layer = (run - inLayer) / plan.runsPerLayer;
  return plan.firstOffsetBytes + layer * plan.layerStrideBytes + inLayer * plan.runStrideBytes;
}

/** Whether every run begins and ends at a multiple of `unitBytes` when the slot begins at `slotOffset`. */
export function inUnitsOf(plan: BoxPlan, unitBytes: number, slotOffset: number): boolean {
  return (
    (slotOffset + plan.firstOffsetBytes) % unitBytes === 0 &&
    plan.runBytes % unitBytes === 0 &&
    (plan.runsPerLayer === 1 || plan.runStrideBytes % unitBytes === 0) &&
    (plan.runs === plan.runsPerLayer || plan.layerStrideBytes % unitBytes === 0)
  );
}
