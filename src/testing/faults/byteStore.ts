/**
 * Stand-ins for the stores that need hardware, for virtual time: they hold real bytes in plain memory, keep
 * the tier contract and verify as the real ones do, the device what is written to it, the disk what is read
 * from it. Every call ends in the turn in which it was made; delays and faults are what `FaultStore` adds.
 * `verify: false` is for control runs, which have to fail.
 */

import { digestBytes } from '../../runtime/digest.ts';
import { optionNames, requireOptions } from '../../runtime/options.ts';
import { type PoolShape, slotOffsetBytes } from '../../runtime/pool/shape.ts';
import { corrupt, loaded, refused, SlotLedger, type SlotPlace } from '../../runtime/tier/slotLedger.ts';
import { Tier } from '../../runtime/tier/tier.ts';
import type {
  CopyItem,
  DeviceTierStore,
  ItemEnded,
  SealItem,
  SealResult,
  StoreItem,
  StoreResult,
  TierStore,
} from '../../runtime/tier/tierStore.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { tellEnds } from './itemEnds.ts';

export class ByteStore implements TierStore {
  readonly tier: Tier;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'];
  protected readonly ledger: SlotLedger;
  readonly #shape: PoolShape;
  readonly #bytes: Uint8Array;
  /** The key that each slot was written under, four words a slot; only where reads are verified. */
  readonly #keys: Uint32Array;
  #disposed = false;

  protected constructor(tier: Tier, shape: PoolShape, verifies: TierStore['verifies']) {
    this.tier = tier;
    this.capacityBytes = shape.capacityBytes;
    this.verifies = verifies;
    this.ledger = new SlotLedger(shape);
    this.#shape = shape;
    this.#bytes = new Uint8Array(shape.capacityBytes);
    this.#keys = new Uint32Array(shape.slotLimit * 4);
  }

  describe(): Record<string, string | number | boolean> {
    return { store: 'stand-in', capacityBytes: this.capacityBytes };
  }

  /** The slot's bytes themselves: what a kernel of the embedder writes, and what a test looks at. */
  bytesAt(slot: number, sizeClass = 0): Uint8Array {
    const offset = slotOffsetBytes(this.#shape, slot, sizeClass);
    return this.#bytes.subarray(offset, offset + this.#shape.slotBytes[sizeClass]);
  }

  async write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return tellEnds(
      items.map((item) => this.#write(item)),
      ended,
    );
  }

  async read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return tellEnds(
      items.map((item) => this.#read(item)),
      ended,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
  }

  protected refusal(place: SlotPlace): StoreResult | undefined {
    return this.#disposed ? refused('the store is disposed') : this.ledger.refuseWrite(place);
  }

  #write(item: StoreItem): StoreResult {
    const refusal = this.refusal(item) ?? this.#oddLength(item);
    if (refusal !== undefined) return refusal;
    this.ledger.take(item);
    this.bytesAt(item.slot, item.sizeClass).set(item.bytes);
    this.#keys.set(item.key, item.slot * 4);
    const end = this.verifies.onWrite ? this.#verify(item) : loaded;
    if (end.outcome === Outcome.LOADED) this.ledger.fill(item);
    return end;
  }

  #read(item: StoreItem): StoreResult {
    const refusal = this.#disposed ? refused('the store is disposed') : this.ledger.refuseRead(item);
    const stop = refusal ?? this.#oddLength(item);
    if (stop !== undefined) return stop;
    if (this.verifies.onRead) {
      for (let word = 0; word < 4; word++) {
        if (this.#keys[item.slot * 4 + word] !== item.key[word])
          return corrupt(`slot ${item.slot} holds another key`);
      }
      const end = item.checkedLater === true ? loaded : this.#verify(item);
      if (end.outcome !== Outcome.LOADED) return end;
    }
    item.bytes.set(this.bytesAt(item.slot, item.sizeClass));
    return loaded;
  }

  #verify({ slot, sizeClass, digest }: StoreItem): StoreResult {
    const found = digestBytes(this.bytesAt(slot, sizeClass));
    if (found.lo === digest.lo && found.hi === digest.hi) return loaded;
    return corrupt(`slot ${slot} holds other bytes than its digest says`);
  }

  #oddLength({ sizeClass, bytes }: StoreItem): StoreResult | undefined {
    const slotBytes = this.#shape.slotBytes[sizeClass];
    return bytes.byteLength === slotBytes
      ? undefined
      : refused(`${bytes.byteLength} bytes for a slot of ${slotBytes}`);
  }
}

export interface StandInOptions {
  /** Whether bytes are compared with their digest on their way. Default true. */
  readonly verify?: boolean;
}

const standInOptionsNames = optionNames<StandInOptions>({ verify: true });

/** Stands in for a disk. */
export class StandInDisk extends ByteStore {
  constructor(shape: PoolShape, options: StandInOptions = {}) {
    requireOptions(options, standInOptionsNames, 'options', 'TKV_CONFIG');
    super(Tier.NVME, shape, { onWrite: false, onRead: options.verify ?? true });
  }
}

/** Stands in for a GPU's memory; kernels are whoever writes to `bytesAt`. */
export class StandInDevice extends ByteStore implements DeviceTierStore {
  constructor(shape: PoolShape, options: StandInOptions = {}) {
    requireOptions(options, standInOptionsNames, 'options', 'TKV_CONFIG');
    super(Tier.HBM, shape, { onWrite: options.verify ?? true, onRead: false });
  }

  async seal(items: readonly SealItem[]): Promise<readonly SealResult[]> {
    return items.map((item) => {
      const refusal = this.refusal(item);
      if (refusal !== undefined) return { ...refusal, digest: { lo: 0, hi: 0 } };
      this.ledger.take(item);
      this.ledger.fill(item);
      return { ...loaded, digest: digestBytes(this.bytesAt(item.slot, item.sizeClass)) };
    });
  }

  async copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]> {
    return items.map(({ sizeClass, fromSlot, fromGeneration, toSlot, toGeneration, unsealed }) => {
      const from = { slot: fromSlot, sizeClass, generation: fromGeneration };
      const to = { slot: toSlot, sizeClass, generation: toGeneration };
      const unreadable = unsealed === true ? undefined : this.ledger.refuseRead(from);
      const refusal = this.refusal(to) ?? unreadable;
      if (refusal !== undefined) return refusal;
      this.ledger.take(to);
      this.bytesAt(toSlot, sizeClass).set(this.bytesAt(fromSlot, sizeClass));
      this.ledger.fill(to);
      return loaded;
    });
  }

  async clear(items: readonly SealItem[]): Promise<readonly StoreResult[]> {
    return items.map((item) => {
      const refusal = this.refusal(item);
      if (refusal !== undefined) return refusal;
      this.ledger.take(item);
      this.bytesAt(item.slot, item.sizeClass).fill(0);
      return loaded;
    });
  }
}
