/**
 * The HBM tier: slots in a few large GPUBuffers. This file holds the store, how its calls start and end, and
 * what each kind of call needs of its slots; poolWork.ts does the work on the device.
 *
 * Calls on one slot either exclude each other (`SlotLocks`) or take effect in the order of the calls. Every
 * call ends with one result an item. If the device is lost or the pool is disposed of, that is `refused`.
 */

import { requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import { Outcome, Tier } from '../../runtime/tier/tier.ts';
import {
  type CopyItem,
  type ItemEnded,
  refused,
  type SealItem,
  type SealResult,
  SlotLedger,
  SlotLocks,
  type SlotPlace,
  type SlotUse,
  type StoreItem,
  type StoreResult,
} from '../../runtime/tier/tierStore.ts';
import { bytesFault, type LiveDevice } from './device.ts';
import { PoolWork } from './poolWork.ts';
import { Slabs } from './slabs.ts';
import {
  type AdapterReport,
  type BoxItem,
  type DevicePool,
  type HbmStoreOptions,
  hbmStoreOptionsTable,
  type MismatchResult,
  type PatternItem,
  type SlotBuffer,
  type SlotLocation,
  type Verification,
} from './types.ts';
import type { StagingSize } from './uploads.ts';

/**
 * Default mapped buffers of each direction: enough bytes in flight to keep a slow link busy. A submit costs the host
 * about 0.1 ms on a GPU. A buffer of 8 MiB takes it 1 ms to fill, and holds the event loop no longer than that.
 */
const STAGING: StagingSize = { bytes: 8 * 1024 * 1024, count: 8 };
/** On a software device the host copies on both sides, and smaller buffers stay in its caches. */
const SOFTWARE_STAGING: StagingSize = { bytes: 4 * 1024 * 1024, count: 8 };

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
   * @throws TKV_CONFIG if a slot or page is not a multiple of 4 bytes or larger than a buffer may be, or an
   * option is not a positive integer; TKV_DEVICE if the device is lost, has too little memory or does not
   * compile the kernels
   */
  static async open(live: LiveDevice, shape: PoolShape, options: HbmStoreOptions = {}): Promise<HbmStore> {
    checkInputs(
      { live, shape, options },
      {
        live: is.fields({ errorsOf: is.func() }),
        shape: is.fields({ pageBytes: is.number(), pages: is.number() }),
        options: is.optional(is.object()),
      },
    );
    hbmStoreOptionsTable.read(options);
    const label = options.label ?? 'tierkv.hbm';
    const staging = stagingSize(live, shape, options);
    const pool = await Slabs.open(live, shape, label, options.slabBytesMax);
    try {
      const { boxPath, copyThreads, verifyWrites = true } = options;
      const digests = typeof verifyWrites === 'string' ? verifyWrites : usualDigests(live);
      const work = await PoolWork.open(live, pool, label, { staging, digests, boxPath, copyThreads });
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
      copyThreads: this.#work.copies.plan.threads,
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

  /** Waits for work under way before anything is destroyed. */
  async #dispose(): Promise<void> {
    await this.#calls.close();
    await this.#work.destroy();
    this.#pool.destroy();
  }
}

/** The size of mapped buffers: a multiple of 8 bytes, at most the pool's size and the device's limit. */
function stagingSize(live: LiveDevice, { capacityBytes }: PoolShape, options: HbmStoreOptions): StagingSize {
  const usual = live.adapter.software ? SOFTWARE_STAGING : STAGING;
  const bytes = requireInteger('stagingBytes', options.stagingBytes ?? usual.bytes, 8);
  const count = requireInteger('stagingBuffers', options.stagingBuffers ?? usual.count, 1);
  const usefulBytes = Math.ceil(Math.min(bytes, Math.max(capacityBytes, 8)) / 8) * 8;
  const { maxBufferSize, maxStorageBufferBindingSize } = live.device.limits;
  return { bytes: Math.min(usefulBytes, maxBufferSize, maxStorageBufferBindingSize), count };
}

/**
 * Where to digest by default. A GPU digests at the speed of its memory. A software device runs kernels on the
 * host's cores with a bounds check on every load, several times slower than the host's own digest.
 */
function usualDigests(live: LiveDevice): Verification {
  return live.adapter.software ? 'readback' : 'kernel';
}

// ---- calls under way
//
// A call admits its items at once: it locks their slots and notes their generations in the ledger, where the
// next call sees them. Items that are not admitted end in a microtask, after the call has returned; the
// others end with their work. Slots are unlocked before the end of an item is reported.

/** A kind of call: how its items are checked, admitted and begun. */
interface CallKind<Item, Result extends StoreResult> {
  /** Why the item can never be done, whatever its slots hold; undefined if it can. */
  misfit(item: Item): StoreResult | undefined;
  /** The slots that the item works on, and how. Called only for items that fit. */
  slots(item: Item): readonly SlotNeed[];
  /** Gives the locked slots their generations. @returns why the item may not be done now, else undefined */
  admit(item: Item): StoreResult | undefined;
  /** The result of an item that was not done. */
  refusal(end: StoreResult): Result;
  /** Begins the work on one of `items` items. Only the first call of `end` counts. */
  begin(item: Item, end: (result: Result) => void, items: number): void;
  /** Whether several items of a call may name the same slot, which is then locked once. Default false. */
  readonly sharesSlots?: boolean;
}

interface SlotNeed {
  readonly slot: number;
  readonly use: SlotUse;
}

class StoreCalls {
  readonly #live: LiveDevice;
  readonly #locks: SlotLocks;
  readonly #underWay: Set<Promise<unknown>> = new Set();
  #closed = false;

  constructor(live: LiveDevice, locks: SlotLocks) {
    this.#live = live;
    this.#locks = locks;
  }

  make<Item, Result extends StoreResult>(
    kind: CallKind<Item, Result>,
    items: readonly Item[],
    ended: (index: number, result: Result) => void = () => {},
  ): Promise<readonly Result[]> {
    const call = new StoreCall<Result>(items.length, ended);
    const held = kind.sharesSlots === true ? new SharedSlots(this.#locks) : this.#locks;
    const unfit = this.#closed ? refused('the pool is disposed of') : this.#live.loss;
    const refusals: [number, StoreResult][] = [];
    items.forEach((item, index) => {
      const refusal = unfit ?? this.#admit(kind, item, held);
      if (refusal !== undefined) {
        refusals.push([index, refusal]);
        return;
      }
      const slots = kind.slots(item);
      let over = false;
      const end = (result: Result): void => {
        if (over) return;
        over = true;
        for (const { slot, use } of slots) held.release(slot, use);
        call.end(index, result);
      };
      kind.begin(item, end, items.length);
    });
    if (refusals.length > 0) {
      queueMicrotask(() => {
        for (const [index, refusal] of refusals) call.end(index, kind.refusal(refusal));
      });
    }
    this.#underWay.add(call.results);
    void call.results.then(() => this.#underWay.delete(call.results));
    return call.results;
  }

  /** Refuses all later calls, and waits for the calls under way. */
  async close(): Promise<void> {
    this.#closed = true;
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  #admit<Item, Result extends StoreResult>(
    kind: CallKind<Item, Result>,
    item: Item,
    held: Pick<SlotLocks, 'take' | 'release'>,
  ): StoreResult | undefined {
    const misfit = kind.misfit(item);
    if (misfit !== undefined) return misfit;
    const taken: SlotNeed[] = [];
    let refusal: StoreResult | undefined;
    for (const need of kind.slots(item)) {
      refusal = held.take(need.slot, need.use);
      if (refusal !== undefined) break;
      taken.push(need);
    }
    refusal ??= kind.admit(item);
    if (refusal !== undefined) for (const { slot, use } of taken) held.release(slot, use);
    return refusal;
  }
}

/** Locks that a call takes once for all of its items on the same slot. */
class SharedSlots {
  readonly #locks: SlotLocks;
  readonly #items: Map<number, number> = new Map();

  constructor(locks: SlotLocks) {
    this.#locks = locks;
  }

  take(slot: number, use: SlotUse): StoreResult | undefined {
    const items = this.#items.get(slot) ?? 0;
    const busy = items === 0 ? this.#locks.take(slot, use) : undefined;
    if (busy === undefined) this.#items.set(slot, items + 1);
    return busy;
  }

  release(slot: number, use: SlotUse): void {
    const items = (this.#items.get(slot) ?? 0) - 1;
    this.#items.set(slot, items);
    if (items === 0) this.#locks.release(slot, use);
  }
}

class StoreCall<Result extends StoreResult> {
  readonly results: Promise<readonly Result[]>;
  readonly #results: Result[];
  readonly #ended: (index: number, result: Result) => void;
  #left: number;
  #resolve: (results: readonly Result[]) => void = () => {};

  constructor(count: number, ended: (index: number, result: Result) => void) {
    this.#results = new Array<Result>(count);
    this.#ended = ended;
    this.#left = count;
    this.results = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    if (count === 0) this.#resolve([]);
  }

  end(index: number, result: Result): void {
    this.#results[index] = result;
    try {
      this.#ended(index, result);
    } catch (error) {
      // The store goes on. The error of the caller's callback is thrown where the process sees it.
      queueMicrotask(() => {
        throw error;
      });
    }
    this.#left -= 1;
    if (this.#left === 0) this.#resolve(this.#results);
  }
}

// ---- the kinds of calls

interface CallKinds {
  readonly write: CallKind<StoreItem, StoreResult>;
  readonly read: CallKind<StoreItem, StoreResult>;
  readonly seal: CallKind<SealItem, SealResult>;
  readonly clear: CallKind<SealItem, StoreResult>;
  readonly fillPattern: CallKind<PatternItem, StoreResult>;
  readonly countMismatches: CallKind<PatternItem, MismatchResult>;
  readonly copy: CallKind<CopyItem, StoreResult>;
  readonly readBoxes: CallKind<BoxItem, StoreResult>;
  readonly writeBoxes: CallKind<BoxItem, StoreResult>;
}

/** @param verifies whether bytes that `write` brings are compared with the item's digest */
function callKinds(ledger: SlotLedger, work: PoolWork, verifies: boolean): CallKinds {
  const { slotBytes } = ledger.shape;
  const same = (end: StoreResult): StoreResult => end;
  const misplaced = (item: SlotPlace): StoreResult | undefined => ledger.misplaced(item);
  const readable = (item: SlotPlace): StoreResult | undefined => ledger.refuseRead(item);
  const misfit = (item: StoreItem): StoreResult | undefined => {
    const wrongPlace = ledger.misplaced(item);
    if (wrongPlace !== undefined) return wrongPlace;
    const fault = bytesFault(item.bytes, slotBytes[item.sizeClass]);
    return fault === '' ? undefined : refused(fault);
  };
  /** Gives the slot the item's generation. */
  const renew = (item: SlotPlace): StoreResult | undefined => {
    const refusal = ledger.refuseWrite(item);
    if (refusal === undefined) ledger.take(item);
    return refusal;
  };
  /** Gives the slot a generation whose bytes the device writes itself, in the order of the calls. */
  const renewFilled = (item: SlotPlace): StoreResult | undefined => {
    const refusal = renew(item);
    if (refusal === undefined) ledger.fill(item);
    return refusal;
  };
  const boxMisfit = (item: BoxItem): StoreResult | undefined => {
    const wrongPlace = ledger.misplaced(item);
    if (wrongPlace !== undefined) return wrongPlace;
    const { containerBytes, boxBytes } = item.plan;
    if (containerBytes > slotBytes[item.sizeClass]) {
      return refused(`a slot of ${slotBytes[item.sizeClass]} bytes cannot hold a unit of ${containerBytes}`);
    }
    const fault = bytesFault(item.bytes, boxBytes, 'box');
    return fault === '' ? undefined : refused(fault);
  };
  /**
   * A box write of the slot's generation keeps the other bytes, and whole reads go on finding them. A newer
   * generation takes the slot, and whole reads find nothing until `seal` says that it is complete.
   */
  const admitBoxWrite = (item: BoxItem): StoreResult | undefined => {
    const refusal = ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    const absent = ledger.refuseRead(item);
    if (absent === undefined) return undefined;
    const sameGeneration = item.generation === ledger.generationOf(item.slot);
    if (absent.outcome === Outcome.CORRUPT && sameGeneration) return absent; // of another size class
    ledger.take(item);
    return undefined;
  };

  const filling = { misfit: misplaced, slots: needing('device'), admit: renewFilled, refusal: same };
  return {
    write: {
      misfit,
      slots: needing('write'),
      admit: renew,
      refusal: same,
      begin: (item, end) => {
        work.write(item, item.bytes, verifies ? item.digest : undefined, (result) => {
          if (result.outcome === Outcome.LOADED) ledger.fill(item);
          end(result);
        });
      },
    },
    read: {
      misfit,
      slots: needing('read'),
      admit: readable,
      refusal: same,
      begin: (item, end) => work.read(item, item.bytes, end),
    },
    seal: {
      ...filling,
      refusal: (end) => ({ ...end, digest: { lo: 0, hi: 0 } }),
      begin: (item, end) => work.seal(item, end),
    },
    clear: { ...filling, begin: (item, end) => work.clear(item, end) },
    fillPattern: { ...filling, begin: (item, end) => work.fill(item, end) },
    countMismatches: {
      misfit: misplaced,
      slots: needing('read'),
      admit: readable,
      refusal: (end) => ({ ...end, mismatchedWords: 0 }),
      begin: (item, end) => work.check(item, end),
    },
    copy: {
      misfit: (item) =>
        item.fromSlot === item.toSlot
          ? refused(`slot ${item.fromSlot} cannot be copied onto itself`)
          : (ledger.misplaced(sourceOf(item)) ?? ledger.misplaced(targetOf(item))),
      slots: ({ fromSlot, toSlot }) => [
        { slot: fromSlot, use: 'source' },
        { slot: toSlot, use: 'device' },
      ],
      admit: (item) => {
        const source = sourceOf(item);
        // An unsealed source may be newer than the generation that the store knows, but not older.
        const refusal = item.unsealed === true ? ledger.refuseWrite(source) : ledger.refuseRead(source);
        return refusal ?? renewFilled(targetOf(item));
      },
      refusal: same,
      begin: (item, end) => work.copy(sourceOf(item), targetOf(item), end),
    },
    readBoxes: {
      misfit: boxMisfit,
      slots: needing('read'),
      admit: readable,
      refusal: same,
      begin: (item, end, items) => work.readBox(item, item.plan, item.bytes, items, end),
    },
    writeBoxes: {
      misfit: boxMisfit,
      slots: needing('write'),
      sharesSlots: true,
      admit: admitBoxWrite,
      refusal: same,
      begin: (item, end, items) => work.writeBox(item, item.plan, item.bytes, items, end),
    },
  };
}

function needing(use: SlotUse): (item: SlotPlace) => readonly SlotNeed[] {
  return ({ slot }) => [{ slot, use }];
}

function sourceOf(item: CopyItem): SlotPlace {
  return { slot: item.fromSlot, sizeClass: item.sizeClass, generation: item.fromGeneration };
}

function targetOf(item: CopyItem): SlotPlace {
  return { slot: item.toSlot, sizeClass: item.sizeClass, generation: item.toGeneration };
}
