/**
 * The HBM tier: slots in a few large GPUBuffers. This file is the store's face; the work is done by five kinds of work
 * beside each other, which meet only in the slot turns (order) and the ledger (generations):
 *
 *     write --> Uploads      upload path --> slabs --> check of what arrived --> loaded | corrupt
 *     read  --> Readbacks    slabs --> readback ring --> loaded
 *     seal  --> KernelCalls, or Readbacks where the host digests faster than the device
 *     fillPattern, countMismatches --> KernelCalls
 *     copy  --> DeviceCopies
 *     readBoxes, writeBoxes --> Boxes     parts of slots, gathered and scattered by kernels
 *
 * Every call ends with one result an item, also when the device is lost or the pool disposed of: then `refused`.
 */

import type { PoolShape } from '../../runtime/pool/shape.ts';
import { Tier } from '../../runtime/tier.ts';
import { refused, SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import type { SealItem, SealResult, StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import { type ArrivalChecks, openArrivalChecks } from './arrivals.ts';
import { Boxes, type BoxPathName } from './boxes/index.ts';
import { DeviceCopies } from './deviceCopies.ts';
import { KernelCalls, type KernelItem, type KernelTask, kernelCall } from './kernelCalls.ts';
import type { LiveDevice } from './liveDevice.ts';
import { PlaceBatches } from './placeBatches.ts';
import { PlaceKernels } from './placeKernels.ts';
import type { PoolContext } from './poolContext.ts';
import { ReadbackRing } from './readbackRing.ts';
import { Readbacks } from './readbacks.ts';
import { Slabs } from './slabs.ts';
import { readCall, sealCall } from './slotReads.ts';
import { SlotTurns } from './slotTurns.ts';
import { type StagingSizes, stagingSizes } from './stagingSizes.ts';
import { StoreCall } from './storeCall.ts';
import { type StoreTasks, storeTasks } from './storeTasks.ts';
import { chooseStrategy, type UploadStrategy, type UploadWishes } from './strategy.ts';
import type {
  AdapterReport,
  BoxItem,
  CopyItem,
  DevicePool,
  HbmStoreOptions,
  MismatchResult,
  PatternItem,
  SlotBuffer,
} from './types.ts';
import { openUploadPath, type UploadPath } from './uploadPath.ts';
import { Uploads } from './uploads.ts';

const PLACES_PER_BATCH = 4096;
const BATCHES = 16;

export class HbmStore implements DevicePool {
  readonly tier: typeof Tier.HBM = Tier.HBM;
  readonly capacityBytes: number;
  readonly verifies: { readonly onWrite: boolean; readonly onRead: boolean };
  readonly streams: { readonly reads: boolean; readonly writes: boolean } = { reads: true, writes: true };
  readonly adapter: AdapterReport;
  readonly lost: Promise<string>;
  readonly #pool: PoolContext;
  readonly #uploadPath: UploadPath;
  readonly #checks: ArrivalChecks;
  /** How uploads go and are verified, and how that was found. */
  readonly strategy: UploadStrategy;
  readonly #readbackRing: ReadbackRing;
  readonly #staging: StagingSizes;
  readonly #uploads: Uploads;
  readonly #readbacks: Readbacks;
  readonly #kernelCalls: KernelCalls;
  readonly #copies: DeviceCopies;
  readonly #boxes: Boxes;
  readonly #tasks: StoreTasks;
  readonly #underWay: Set<Promise<unknown>> = new Set();
  #disposing: Promise<void> | undefined;

  private constructor(
    pool: PoolContext,
    { up, down }: StagingSizes,
    strategy: UploadStrategy,
    boxPath: BoxPathName | undefined,
  ) {
    const { live, ledger, label } = pool;
    this.#pool = pool;
    this.capacityBytes = pool.slabs.shape.capacityBytes;
    this.adapter = live.adapter;
    this.strategy = strategy;
    this.verifies = { onWrite: strategy.verification !== 'none', onRead: false };
    this.lost = live.lost;
    this.#staging = { up, down };
    this.#uploadPath = openUploadPath(strategy.uploadPath, live, pool.slabs.buffers, label, up);
    this.#checks = openArrivalChecks(strategy.verification, pool, up);
    this.#readbackRing = new ReadbackRing(live, label, down);
    this.#uploads = new Uploads(pool, this.#uploadPath, this.#checks);
    this.#readbacks = new Readbacks(pool, this.#readbackRing);
    this.#kernelCalls = new KernelCalls(pool);
    this.#copies = new DeviceCopies(pool, up.most.bytes);
    this.#boxes = new Boxes(pool, this.#readbackRing, boxPath);
    this.#tasks = storeTasks(ledger);
  }

  /**
   * @throws TKV_CONFIG when a slot or page is no multiple of 4 bytes or larger than a buffer may be; TKV_DEVICE when the
   * device is lost or has not that much memory
   */
  static async open(live: LiveDevice, shape: PoolShape, options: HbmStoreOptions = {}): Promise<HbmStore> {
    const label = options.label ?? 'tierkv.hbm';
    const slabs = await Slabs.open(live, shape, label, options.slabBytesMax);
    try {
      const unitBytes = Math.min(...shape.slotBytes);
      const strategy = await chooseStrategy(live, unitBytes, wishesOf(options), (trialShape, trial) =>
        HbmStore.open(live, trialShape, {
          label: `${label}.trial`,
          uploadPath: trial.uploadPath,
          verifyWrites: trial.verification,
        }),
      );
      const staging = stagingSizes(live, shape, strategy, options);
      const kernels = await PlaceKernels.open(live, slabs, label, PLACES_PER_BATCH);
      const batches = new PlaceBatches(live, kernels, label, BATCHES);
      const ledger = new SlotLedger(shape);
      const turns = new SlotTurns(shape.slotLimit);
      const pool = { live, slabs, kernels, batches, ledger, turns, label };
      return new HbmStore(pool, staging, strategy, options.boxPath);
    } catch (error) {
      slabs.destroy();
      throw error;
    }
  }

  describe(): Record<string, string | number | boolean> {
    const { slabs, live } = this.#pool;
    const { up, down } = this.#staging;
    return {
      store: 'webgpu',
      adapter: this.adapter.name,
      vendor: this.adapter.vendor,
      software: this.adapter.software,
      source: this.adapter.source,
      slabs: slabs.buffers.length,
      slabBytes: Math.min(slabs.slabBytes, this.capacityBytes),
      stagingBytes: up.most.bytes,
      stagingBuffers: up.most.buffers,
      readbackBytes: down.most.bytes,
      uploadPath: this.strategy.uploadPath,
      verification: this.strategy.verification,
      sealing: this.strategy.sealing,
      strategy: this.strategy.found,
      deviceErrors: live.deviceErrors,
    };
  }

  write(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    return this.#call(
      items,
      slotsOf(items),
      (end) => end,
      (call) => this.#uploads.push(call),
    );
  }

  read(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    return this.#call(
      items,
      slotsOf(items),
      (end) => end,
      (call) => this.#readbacks.push(readCall(this.#pool, call)),
    );
  }

  seal(items: readonly SealItem[]): Promise<readonly SealResult[]> {
    if (this.strategy.sealing === 'kernel') return this.#run(this.#tasks.seal, items);
    const { admit, refuse } = this.#tasks.seal;
    return this.#call(items, slotsOf(items), refuse, (call) =>
      this.#readbacks.push(sealCall(this.#pool, call, admit)),
    );
  }

  fillPattern(items: readonly PatternItem[]): Promise<readonly StoreResult[]> {
    return this.#run(this.#tasks.fill, items);
  }

  countMismatches(items: readonly PatternItem[]): Promise<readonly MismatchResult[]> {
    return this.#run(this.#tasks.check, items);
  }

  copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]> {
    const slots = items.flatMap((item) => [item.fromSlot, item.toSlot]);
    return this.#call(
      items,
      slots,
      (end) => end,
      (call) => this.#copies.push(call),
    );
  }

  readBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]> {
    return this.#call(
      items,
      slotsOf(items),
      (end) => end,
      (call) => this.#boxes.read(call),
    );
  }

  writeBoxes(items: readonly BoxItem[]): Promise<readonly StoreResult[]> {
    return this.#call(
      items,
      slotsOf(items),
      (end) => end,
      (call) => this.#boxes.write(call),
    );
  }

  buffer(slot: number, sizeClass: number): SlotBuffer {
    return this.#pool.slabs.place(slot, sizeClass);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposing ??= this.#dispose();
    return this.#disposing;
  }

  #run<Item extends KernelItem, Result extends StoreResult>(
    task: KernelTask<Item, Result>,
    items: readonly Item[],
  ): Promise<readonly Result[]> {
    return this.#call(items, slotsOf(items), task.refuse, (call) =>
      this.#kernelCalls.push(kernelCall(task, call)),
    );
  }

  #call<Item, Result>(
    items: readonly Item[],
    slots: readonly number[],
    refuse: (end: StoreResult) => Result,
    start: (call: StoreCall<Item, Result>) => void,
  ): Promise<readonly Result[]> {
    const { live, turns } = this.#pool;
    if (this.#disposing !== undefined || live.lostReason !== '') {
      const why = refused(this.#disposing === undefined ? live.lostReason : 'the pool is disposed of');
      return Promise.resolve(items.map(() => refuse(why)));
    }
    const call = new StoreCall<Item, Result>(items, turns.enter(slots));
    this.#underWay.add(call.ended);
    void call.ended.then(() => this.#underWay.delete(call.ended));
    start(call);
    return call.ended;
  }

  /** Nothing is destroyed under work that is still on its way; bytes that have not arrived are not waited for. */
  async #dispose(): Promise<void> {
    this.#uploads.close();
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
    await this.#boxes.destroy();
    await Promise.all([
      this.#uploadPath.destroy(),
      this.#checks.destroy(),
      this.#readbackRing.destroy(),
      this.#pool.batches.destroy(),
    ]);
    this.#copies.destroy();
    this.#pool.kernels.destroy();
    this.#pool.slabs.destroy();
  }
}

function slotsOf(items: readonly { readonly slot: number }[]): number[] {
  return items.map((item) => item.slot);
}

function wishesOf({ uploadPath, verifyWrites = true, profile }: HbmStoreOptions): UploadWishes {
  const verification = verifyWrites === false ? 'none' : verifyWrites === true ? undefined : verifyWrites;
  return { uploadPath, verification, profile };
}
