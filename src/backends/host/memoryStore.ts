/**
 * The DDR tier: slots in one host arena. Bytes are copied within the call, so calls take effect in the order
 * in which they are made, and a slot is never busy. Only the reports come later: `ended` is called after the
 * call has returned. Chunks of the arena hold whole pages, so a slot never straddles two chunks.
 *
 * Below a device, bytes are not checked here unless `verifyReads` is set: the device checks what it receives, and bytes
 * from a file were checked when they were read. As the top tier (`verifyWrites`) the store compares what arrives,
 * because sequences read it in place; a seal is the digest of the bytes as they lie, without a fence to wait for.
 */

import { configError, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import { type PoolShape, slotOffsetBytes } from '../../runtime/tables/slotPool.ts';
import { Tier } from '../../runtime/tier/tier.ts';
import {
  type CopyItem,
  corrupt,
  type HostTierStore,
  type ItemEnded,
  loaded,
  refused,
  type SealItem,
  type SealResult,
  SlotLedger,
  type SlotPlace,
  type StoreItem,
  type StoreResult,
  type TopTierStore,
} from '../../runtime/tier/tierStore.ts';
import { HostArena } from './hostArena.ts';
import { hostDigest } from './hostDigest.ts';

interface MemoryStoreOptions {
  /** Whether each read is compared with the item's digest. Default false. */
  readonly verifyReads?: boolean;
  /** Whether what arrives is compared with the item's digest: for the top tier. Default false. */
  readonly verifyWrites?: boolean;
  /** Whether native calls (mmap, mlock, huge pages) may be used. Default true. */
  readonly native?: boolean;
  /** Bytes of the largest buffer, at least one page. Default 1 GiB. */
  readonly chunkBytes?: number;
  /** Name of the setting, for errors about too little memory. Default 'ddr.capacityBytes'. */
  readonly field?: string;
}

const CHUNK_BYTES_DEFAULT = 1024 ** 3;

const memoryStoreOptionsTable = optionTable(
  {
    verifyReads: is.optional(is.flag(), false),
    verifyWrites: is.optional(is.flag(), false),
    native: is.optional(is.flag(), true),
    chunkBytes: is.optional(is.integer(1), CHUNK_BYTES_DEFAULT),
    field: is.optional(is.text(), 'ddr.capacityBytes'),
  } satisfies Kinds<MemoryStoreOptions>,
  'TKV_CONFIG',
);

export class MemoryStore implements HostTierStore, TopTierStore {
  readonly tier: Tier = Tier.DDR;
  readonly capacityBytes: number;
  readonly verifies: HostTierStore['verifies'];
  readonly #shape: PoolShape;
  readonly #arena: HostArena;
  readonly #pagesPerChunk: number;
  readonly #ledger: SlotLedger;
  /** The size class as which each slot was last viewed, for `markWritten`. */
  readonly #viewedClass: Uint8Array;
  #disposed = false;

  private constructor(
    shape: PoolShape,
    arena: HostArena,
    pagesPerChunk: number,
    verifies: HostTierStore['verifies'],
  ) {
    this.#shape = shape;
    this.#arena = arena;
    this.#pagesPerChunk = pagesPerChunk;
    this.#ledger = new SlotLedger(shape);
    this.#viewedClass = new Uint8Array(shape.slotLimit);
    this.capacityBytes = shape.capacityBytes;
    this.verifies = verifies;
  }

  /** @throws TKV_CONFIG if memory is too little, or slots to be verified are not whole 32-bit words */
  static async open(shape: PoolShape, options: MemoryStoreOptions = {}): Promise<MemoryStore> {
    is.fields({ pageBytes: is.number(), pages: is.number() }).read(shape, 'shape');
    const read = memoryStoreOptionsTable.read(options);
    const { verifyReads: onRead, verifyWrites: onWrite, native, field, chunkBytes: chunkBytesMax } = read;
    const oddClass = shape.slotBytes.findIndex((bytes) => bytes % 4 !== 0);
    if ((onRead || onWrite) && oddClass >= 0) {
      const problem = `is ${shape.slotBytes[oddClass]}, not a multiple of 4`;
      throw configError(`slotBytes[${oddClass}]`, problem, 'Digests need whole 32-bit words: pad the slot.');
    }
    const pagesPerChunk = Math.max(1, Math.floor(chunkBytesMax / shape.pageBytes));
    const chunkBytes: number[] = [];
    for (let page = 0; page < shape.pages; page += pagesPerChunk) {
      chunkBytes.push(Math.min(pagesPerChunk, shape.pages - page) * shape.pageBytes);
    }
    const arena = await HostArena.open({ chunkBytes, native, field });
    return new MemoryStore(shape, arena, pagesPerChunk, { onRead, onWrite });
  }

  describe(): Record<string, string | number | boolean> {
    const facts = Object.entries(this.#arena.facts).filter(([, value]) => value !== '');
    return { store: 'memory', ...Object.fromEntries(facts) };
  }

  write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    const results = items.map((item) => this.#write(item));
    return report(results, ended);
  }

  read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    const results = items.map((item) => this.#read(item));
    return report(results, ended);
  }

  view(slot: number, sizeClass: number): Uint8Array {
    if (this.#disposed) {
      throw new TierKVError('TKV_STATE', 'the memory store is disposed. Take views only while it is open.');
    }
    this.#viewedClass[slot] = sizeClass;
    return this.#bytesOf(slot, sizeClass);
  }

  generationOf(slot: number): number {
    return this.#ledger.holds(slot) ? this.#ledger.generationOf(slot) : 0;
  }

  /** @throws TKV_STALE if the slot has a newer generation */
  markWritten(slot: number, generation: number): void {
    const place = { slot, generation, sizeClass: this.#viewedClass[slot] ?? 0 };
    const refusal = this.#ledger.refuseWrite(place);
    if (refusal !== undefined) {
      throw new TierKVError('TKV_STALE', `${refusal.reason}. Reserve the slot again before writing it.`);
    }
    this.#ledger.take(place);
    this.#ledger.fill(place);
  }

  seal(items: readonly SealItem[]): Promise<readonly SealResult[]> {
    const results = items.map((item): SealResult => {
      const refusal = this.#refusePlace(item) ?? this.#ledger.refuseWrite(item);
      if (refusal !== undefined) return { ...refusal, digest: { lo: 0, hi: 0 } };
      this.#ledger.take(item);
      this.#ledger.fill(item);
      return { ...loaded, digest: hostDigest(this.#bytesOf(item.slot, item.sizeClass)) };
    });
    return Promise.resolve(results);
  }

  copy(items: readonly CopyItem[]): Promise<readonly StoreResult[]> {
    return Promise.resolve(items.map((item) => this.#copy(item)));
  }

  clear(items: readonly SealItem[]): Promise<readonly StoreResult[]> {
    const results = items.map((item): StoreResult => {
      const refusal = this.#refusePlace(item) ?? this.#ledger.refuseWrite(item);
      if (refusal !== undefined) return refusal;
      this.#ledger.take(item);
      this.#bytesOf(item.slot, item.sizeClass).fill(0);
      this.#ledger.fill(item);
      return loaded;
    });
    return Promise.resolve(results);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed = true;
    this.#arena[Symbol.dispose]();
  }

  #write(item: StoreItem): StoreResult {
    const refusal = this.#refuse(item) ?? this.#ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    this.#ledger.take(item);
    const bytes = this.#bytesOf(item.slot, item.sizeClass);
    bytes.set(item.bytes);
    if (this.verifies.onWrite && !isRight(bytes, item)) {
      return corrupt(`slot ${item.slot} was sent other bytes than its digest says`);
    }
    this.#ledger.fill(item);
    return loaded;
  }

  #copy({ sizeClass, fromSlot, fromGeneration, toSlot, toGeneration, unsealed }: CopyItem): StoreResult {
    const source = { slot: fromSlot, sizeClass, generation: fromGeneration };
    const target = { slot: toSlot, sizeClass, generation: toGeneration };
    if (fromSlot === toSlot) return refused(`slot ${fromSlot} cannot be copied onto itself`);
    // An unsealed source may be newer than the generation that the store knows, but not older.
    const refusal =
      this.#refusePlace(source) ??
      (unsealed === true ? this.#ledger.refuseWrite(source) : this.#ledger.refuseRead(source)) ??
      this.#ledger.refuseWrite(target);
    if (refusal !== undefined) return refusal;
    this.#ledger.take(target);
    this.#bytesOf(toSlot, sizeClass).set(this.#bytesOf(fromSlot, sizeClass));
    this.#ledger.fill(target);
    return loaded;
  }

  #read(item: StoreItem): StoreResult {
    const refusal = this.#refuse(item) ?? this.#ledger.refuseRead(item);
    if (refusal !== undefined) return refusal;
    const bytes = this.#bytesOf(item.slot, item.sizeClass);
    if (this.verifies.onRead && item.checkedLater !== true && !isRight(bytes, item)) {
      return corrupt(`slot ${item.slot} holds other bytes than its digest says`);
    }
    item.bytes.set(bytes);
    return loaded;
  }

  /** Why a call without bytes of its own must be refused. */
  #refusePlace(place: SlotPlace): StoreResult | undefined {
    return this.#disposed ? refused('the store is disposed') : this.#ledger.misplaced(place);
  }

  #refuse(item: StoreItem): StoreResult | undefined {
    if (this.#disposed) return refused('the store is disposed');
    const slotBytes = this.#shape.slotBytes[item.sizeClass];
    if (slotBytes === undefined || item.bytes.byteLength === slotBytes) return undefined;
    return refused(`${item.bytes.byteLength} bytes for a slot of ${slotBytes}`);
  }

  #bytesOf(slot: number, sizeClass: number): Uint8Array {
    const offset = slotOffsetBytes(this.#shape, slot, sizeClass);
    const chunkBytes = this.#pagesPerChunk * this.#shape.pageBytes;
    const chunk = this.#arena.chunks[Math.floor(offset / chunkBytes)];
    return new Uint8Array(chunk, offset % chunkBytes, this.#shape.slotBytes[sizeClass]);
  }
}

function isRight(bytes: Uint8Array, { digest }: StoreItem): boolean {
  const found = hostDigest(bytes);
  return found.lo === digest.lo && found.hi === digest.hi;
}

/** Reports results that are known already, after their call has returned. */
async function report(results: readonly StoreResult[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
  if (ended === undefined) return results;
  await Promise.resolve();
  results.forEach((result, index) => void ended(index, result));
  return results;
}
