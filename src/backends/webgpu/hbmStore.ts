/**
 * The HBM tier: slots in a few large GPUBuffers. This file is the store's face. What a call asks of its slots
 * stands in calls/callKinds.ts, how calls start and end in calls/storeCalls.ts, and what the device does for
 * them in calls/poolWork.ts.
 *
 * Calls on one slot either exclude each other (slotLocks.ts) or take effect in the order in which they were
 * made. Every call ends with one result an item, also when the device is lost or the pool is disposed of:
 * then `refused`.
 */

import { requireInteger } from '../../runtime/errors.ts';
import { requireOptions } from '../../runtime/options.ts';
import type { PoolShape } from '../../runtime/pool/shape.ts';
import { SlotLedger } from '../../runtime/tier/slotLedger.ts';
import { SlotLocks } from '../../runtime/tier/slotLocks.ts';
import { Tier } from '../../runtime/tier/tier.ts';
import type {
  CopyItem,
  ItemEnded,
  SealItem,
  SealResult,
  StoreItem,
  StoreResult,
} from '../../runtime/tier/tierStore.ts';
import { type CallKinds, callKinds } from './calls/callKinds.ts';
import { PoolWork } from './calls/poolWork.ts';
import { StoreCalls } from './calls/storeCalls.ts';
import type { LiveDevice } from './device/liveDevice.ts';
import { Slabs } from './pool/slabs.ts';
import type { StagingSize } from './staging/mappedBuffers.ts';
import {
  type AdapterReport,
  type BoxItem,
  type DevicePool,
  type HbmStoreOptions,
  hbmStoreOptionsNames,
  type MismatchResult,
  type PatternItem,
  type SlotBuffer,
  type SlotLocation,
  type Verification,
} from './types.ts';

/** Enough bytes in flight to keep a link busy to a device that is far away. */
const STAGING: StagingSize = { bytes: 4 * 1024 * 1024, count: 8 };

export class HbmStore implements DevicePool {
  readonly tier: typeof Tier.HBM = Tier.HBM;
  readonly capacityBytes: number;
  readonly verifies: { readonly onWrite: boolean; readonly onRead: boolean };
  readonly adapter: AdapterReport;
  readonly lost: Promise<string>;
  readonly slabs: readonly GPUBuffer[];
  readonly #live: LiveDevice;
  readonly #pool: Slabs;
  readonly #work: PoolWork;
  readonly #calls: StoreCalls;
  readonly #kinds: CallKinds;
  #disposing: Promise<void> | undefined;

  private constructor(live: LiveDevice, pool: Slabs, work: PoolWork, verifies: boolean) {
    this.#live = live;
    this.#pool = pool;
    this.#work = work;
    this.capacityBytes = pool.shape.capacityBytes;
    this.verifies = { onWrite: verifies, onRead: false };
    this.adapter = live.adapter;
    this.lost = live.lost;
    this.slabs = pool.buffers;
    this.#calls = new StoreCalls(live, new SlotLocks());
    this.#kinds = callKinds(new SlotLedger(pool.shape), work, verifies);
  }

  /**
   * @throws TKV_CONFIG when a slot or page is no multiple of 4 bytes or larger than a buffer may be, or an
   * option is no positive integer; TKV_DEVICE when the device is lost, has not that much memory or does not
   * compile the kernels
   */
  static async open(live: LiveDevice, shape: PoolShape, options: HbmStoreOptions = {}): Promise<HbmStore> {
    requireOptions(options, hbmStoreOptionsNames, 'options', 'TKV_CONFIG');
    const label = options.label ?? 'tierkv.hbm';
    const staging = stagingSize(live, shape, options);
    const pool = await Slabs.open(live, shape, label, options.slabBytesMax);
    try {
      const { boxPath, verifyWrites = true } = options;
      const digests = typeof verifyWrites === 'string' ? verifyWrites : usualDigests(live);
      const work = await PoolWork.open(live, pool, label, { staging, digests, boxPath });
      return new HbmStore(live, pool, work, verifyWrites !== false);
    } catch (error) {
      pool.destroy();
      throw error;
    }
  }

  describe(): Record<string, string | number | boolean> {
    const { staging, digests } = this.#work.options;
    return {
      store: 'webgpu',
      adapter: this.adapter.name,
      vendor: this.adapter.vendor,
      software: this.adapter.software,
      source: this.adapter.source,
      slabs: this.slabs.length,
      slabBytes: Math.min(this.#pool.slabBytes, this.capacityBytes),
      stagingBytes: staging.bytes,
      stagingBuffers: staging.count,
      verification: this.verifies.onWrite ? digests : 'none',
      sealing: digests,
      deviceErrors: this.#live.deviceErrors.count,
    };
  }

  write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#calls.make(this.#kinds.write, items, ended);
  }

  read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#calls.make(this.#kinds.read, items, ended);
  }

  seal(items: readonly SealItem[]): Promise<readonly SealResult[]> {
    return this.#calls.make(this.#kinds.seal, items);
  }

  copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]> {
    return this.#calls.make(this.#kinds.copy, items);
  }

  clear(items: readonly SealItem[]): Promise<readonly StoreResult[]> {
    return this.#calls.make(this.#kinds.clear, items);
  }

  fillPattern(items: readonly PatternItem[]): Promise<readonly StoreResult[]> {
    return this.#calls.make(this.#kinds.fillPattern, items);
  }

  countMismatches(items: readonly PatternItem[]): Promise<readonly MismatchResult[]> {
    return this.#calls.make(this.#kinds.countMismatches, items);
  }

  readBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]> {
    return this.#calls.make(this.#kinds.readBoxes, items);
  }

  writeBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]> {
    return this.#calls.make(this.#kinds.writeBoxes, items);
  }

  buffer(slot: number, sizeClass: number): SlotBuffer {
    return this.#pool.bufferOf(slot, sizeClass);
  }

  locate(slot: number, sizeClass: number): SlotLocation {
    return this.#pool.locate(slot, sizeClass);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposing ??= this.#dispose();
    return this.#disposing;
  }

  /** Nothing is destroyed under work that is still on its way. */
  async #dispose(): Promise<void> {
    await this.#calls.close();
    await this.#work.destroy();
    this.#pool.destroy();
  }
}

/** Mapped buffers are multiples of 8 bytes, no larger than the pool or than the device allows. */
function stagingSize(live: LiveDevice, { capacityBytes }: PoolShape, options: HbmStoreOptions): StagingSize {
  const bytes = requireInteger('stagingBytes', options.stagingBytes ?? STAGING.bytes, 8);
  const count = requireInteger('stagingBuffers', options.stagingBuffers ?? STAGING.count, 1);
  const usefulBytes = Math.ceil(Math.min(bytes, Math.max(capacityBytes, 8)) / 8) * 8;
  const { maxBufferSize, maxStorageBufferBindingSize } = live.device.limits;
  return { bytes: Math.min(usefulBytes, maxBufferSize, maxStorageBufferBindingSize), count };
}

/**
 * A GPU digests at the speed of its memory. A software device runs kernels on the host's cores, with a bounds
 * check on every load, and is several times slower at it than the host's own digest.
 */
function usualDigests(live: LiveDevice): Verification {
  return live.adapter.software ? 'readback' : 'kernel';
}
