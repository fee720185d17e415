/// <reference types="@webgpu/types" preserve="true" />

/**
 * The public types of the WebGPU backend: adapters, options, the HBM pool, and boxes. `openDevice` gives a
 * `LiveDevice`, and `HbmStore.open(liveDevice, shape)` a `DevicePool` on it. The pool never outlives the
 * device. Disposing of the pool does not dispose of the device.
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
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, type OptionTable, optionTable } from '../../runtime/options.ts';
import type { SealItem, StoreResult, TopTierStore } from '../../runtime/tier/tierStore.ts';

/** Where the adapter comes from: a Vulkan driver and how it was found, or the platform's own backend. */
export type AdapterSource =
  | 'platform'
  | 'VK_DRIVER_FILES'
  | 'VK_ICD_FILENAMES'
  | 'system-software'
  | 'npm-software'
  | 'TIERKV_ADAPTER'
  | 'embedder';

/** The adapter, for tables and reports. Numbers measured on a `software` adapter are labelled. */
export interface AdapterReport {
  readonly name: string;
  readonly vendor: string;
  readonly software: boolean;
  readonly source: AdapterSource;
}

export interface DeviceOptions {
  /**
   * `hardware`, `software`, the path of a Vulkan ICD manifest, or a part of the adapter's name. Default: the
   * value of TIERKV_ADAPTER; if it is not set, the first adapter that works: hardware, the user's driver,
   * software.
   */
  readonly adapter?: string;
  /** Receives lines for people, for example that a software device is in use. Default: dropped. */
  readonly notice?: (line: string) => void;
  /**
   * How this process waits for the device. `spin` polls in every turn of the event loop and keeps a core
   * busy. `sleep` does so for eight milliseconds, then once a millisecond or when something else wakes the
   * loop. Default `sleep`.
   */
  readonly wait?: 'spin' | 'sleep';
  /** Where the software device is unpacked. Default: `tierkv` in the user's cache folder. */
  readonly cacheDir?: string;
}

export const deviceOptionsTable: OptionTable<DeviceOptions> = optionTable(
  {
    adapter: is.optional(is.text()),
    notice: is.optional(is.func()),
    wait: is.optional(is.oneOf(['spin', 'sleep'])),
    cacheDir: is.optional(is.text()),
  } satisfies Kinds<DeviceOptions>,
  'TKV_CONFIG',
);

/** How bytes on the device are digested: by a kernel, or by the host after a readback. */
export type Verification = 'kernel' | 'readback';

export type BoxPath = 'kernel' | 'copies';

export interface HbmStoreOptions {
  /** Bytes of the pool's largest GPUBuffer; capped by the device's limits. Default 1 GiB. */
  readonly slabBytesMax?: number;
  /** Bytes of one mapped buffer; capped by the pool's size and the device's limits. Default 4 MiB. */
  readonly stagingBytes?: number;
  /** Number of mapped buffers of each direction. Default 8. */
  readonly stagingBuffers?: number;
  /**
   * Whether and how bytes that `write` brings are checked. False: not at all. Default true: by the digest
   * kernel, or by readback on a software device, whose kernels run on the host's cores and are slower than
   * the host's own digest.
   */
  readonly verifyWrites?: boolean | Verification;
  /**
   * How boxes move: by kernels or by one copy a run. Default: chosen by the length and number of the runs.
   */
  readonly boxPath?: BoxPath;
  /**
   * Threads that copy between host memory and mapped buffers. `measured` takes what a measurement at open finds clearly faster
   * than one thread: at most the machine's cores less one, and none for buffers below 8 MiB. Default 0, none, until a driver's
   * own loss of a device during a copy was tried on a GPU.
   */
  readonly copyThreads?: number | 'measured';
  /** Label of the pool's GPU objects. Default `tierkv.hbm`. */
  readonly label?: string;
}

export const hbmStoreOptionsTable: OptionTable<HbmStoreOptions> = optionTable(
  {
    slabBytesMax: is.optional(is.passed()),
    stagingBytes: is.optional(is.passed()),
    stagingBuffers: is.optional(is.passed()),
    verifyWrites: is.optional(is.passed()),
    boxPath: is.optional(is.passed()),
    copyThreads: is.optional(
      is.that(
        'an integer from 0 to 64 or "measured"',
        (value) => value === 'measured' || is.holds(is.integer(0, 64), value),
      ),
    ),
    label: is.optional(is.passed()),
  } satisfies Kinds<HbmStoreOptions>,
  'TKV_CONFIG',
);

/** A place in the pool, and the seed of its pattern (src/runtime/pattern.ts). */
export interface PatternItem extends SealItem {
  readonly seedLo: number;
  readonly seedHi: number;
}

export interface MismatchResult extends StoreResult {
  /** Words of the slot that differ from the pattern; 0 unless the outcome is `loaded`. */
  readonly mismatchedWords: number;
}

/**
 * A part of a slot: the box of a plan, whose container begins at the slot's first byte. A call may name a
 * slot several times, with different boxes; the boxes of one `writeBoxes` must not overlap.
 */
export interface BoxItem extends SealItem {
  readonly plan: BoxPlan;
  /** The packed box, `plan.boxBytes` long: source of a write, destination of a read. */
  readonly bytes: Uint8Array;
}

/** The buffer of a slot, for the embedder's own kernels and copies. */
export interface SlotBuffer {
  readonly buffer: GPUBuffer;
  readonly offsetBytes: number;
  readonly sizeBytes: number;
}

/** The place of a slot as in block tables: the index of a slab and the offset in it. */
export interface SlotLocation {
  readonly slab: number;
  readonly offsetBytes: number;
}

/**
 * An HBM pool: a device's tier store, with calls for replay, tests and embedders.
 *
 * `seal`, `fillPattern`, `clear` and the targets of `copy` take effect in the order of the calls, also on one
 * slot, without waiting for each other. While one of them works on a slot, every other call on the slot is
 * refused. While `write` or `writeBoxes` works on a slot, each call on it is refused. `read`, `readBoxes` and
 * `countMismatches` may share a slot. The source of a `copy` may be shared with everything but a write.
 */
export interface DevicePool extends TopTierStore {
  readonly adapter: AdapterReport;
  /** Fulfilled with the reason when the device is lost. Calls under way and later calls end as `refused`. */
  readonly lost: Promise<string>;
  /**
   * The buffers (STORAGE | COPY_SRC | COPY_DST) that hold all slots, for kernels that read block tables. Do
   * not destroy them, and do not use them after the pool is disposed of.
   */
  readonly slabs: readonly GPUBuffer[];
  /** Generates the bytes of each slot on the device. The slot takes the item's generation. */
  fillPattern(items: readonly PatternItem[]): Promise<readonly StoreResult[]>;
  /** Compares each slot with its pattern on the device. */
  countMismatches(items: readonly PatternItem[]): Promise<readonly MismatchResult[]>;
  /**
   * Reads a box of each slot. Places are checked as by `read`: a stale generation is refused, an empty slot
   * is missing, another size class or a newer generation than the slot's is corrupt. The bytes are not
   * verified, as by `read`.
   */
  readBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]>;
  /**
   * Changes a box of each slot and no other byte. Use it only for slots that a sequence still writes and that
   * no other sequence reads: the content changes, and its digest is void until `seal`. The bytes are not
   * verified.
   *
   * If the slot holds the item's generation its other bytes stay. A newer generation takes the slot, as with
   * `write` and `seal`, and reads find nothing until `seal`. A stale generation is refused; another size
   * class than the slot's is corrupt.
   */
  writeBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]>;
  /** The buffer that holds the slot, and the offset in it. @throws if the pool does not have the slot */
  buffer(slot: number, sizeClass: number): SlotBuffer;
  /**
   * The index in `slabs` of the slot's buffer, and the offset in it.
   * @throws if the pool does not have the slot
   */
  locate(slot: number, sizeClass: number): SlotLocation;
}

// ---- boxes as runs
//
// A box is a regular pattern of runs in its container, most often a block. The pattern is the same in every
// block, so a plan is made once and serves any number of slots:
//
//     | . . r0 r0 . . r1 r1 . . | . . r2 r2 . . r3 r3 . . |
//           ^                         runsPerLayer = 2; r1 lies runStrideBytes after r0, r2 layerStrideBytes
//           firstOffsetBytes
//
// The packed bytes of the box are its runs in order: `[layer][head][K,V][token][headDim]` over the box's
// ranges.

/**
 * The runs of a box. Only `boxPlan` and `wholePlan` make one, and check that all runs lie in the container.
 */
export interface BoxPlan {
  /** Packed bytes of the box: the length of an item's `bytes`. */
  readonly boxBytes: number;
  /** Bytes of the container: a slot must have at least as many. */
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
 * @param container the box that begins at the first byte of each slot. Default: a block
 * @throws TKV_CONFIG if a box is empty or outside of the layout, or the container does not contain the box
 */
export function boxPlan(layout: KVLayout, box: KVBox, container?: KVBox): BoxPlan {
  checkInputs(
    { layout, box, container },
    {
      layout: is.fields({ valueDim: is.number(), version: is.number() }),
      box: is.fields({ layerStart: is.number(), layerEnd: is.number() }),
      container: is.optional(is.object()),
    },
  );
  const around = container ?? blockBox(layout, 0);
  requireBox(layout, box);
  requireBox(layout, around);
  if (!contains(around, box)) {
    throw configError('box', 'reaches out of its container', 'Intersect the two first.');
  }
  const runs = countRuns(box, around);
  const layers = box.layerEnd - box.layerStart;
  const { kvBytes, layerBytes } = boxStrides(layout, around);
  return Object.freeze({
    boxBytes: boxBytes(layout, box),
    containerBytes: boxBytes(layout, around),
    runs,
    runBytes: boxBytes(layout, box) / runs,
    firstOffsetBytes: rowOffsetBytes(layout, around, box.layerStart, box.headStart, 0, box.tokenStart),
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

/** Whether every run begins and ends at a multiple of `unitBytes` if the slot begins at `slotOffset`. */
export function inUnitsOf(plan: BoxPlan, unitBytes: number, slotOffset: number): boolean {
  return (
    (slotOffset + plan.firstOffsetBytes) % unitBytes === 0 &&
    plan.runBytes % unitBytes === 0 &&
    (plan.runsPerLayer === 1 || plan.runStrideBytes % unitBytes === 0) &&
    (plan.runs === plan.runsPerLayer || plan.layerStrideBytes % unitBytes === 0)
  );
}
