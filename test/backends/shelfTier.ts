/**
 * A tier of an embedder: a map in memory behind all other tiers. Store and row are all that it is made of; a test registers
 * it, and takes it back.
 */

import { hostDigest } from '../../src/backends/host/hostDigest.ts';
import type { TierRow } from '../../src/backends/tierRow.ts';
import type { PoolShape } from '../../src/runtime/tables/slotPool.ts';
import { addTierName, type Tier } from '../../src/runtime/tier/tier.ts';
import {
  corrupt,
  type ItemEnded,
  loaded,
  refused,
  SlotLedger,
  type StoreItem,
  type StoreResult,
  type TierStore,
} from '../../src/runtime/tier/tierStore.ts';

declare module '../../src/runtime/tier/tier.ts' {
  interface TierTitles {
    shelf: 'Shelf';
  }
}
declare module '../../src/backends/tierRows.ts' {
  interface TierOptions {
    /** Bytes of blocks that the shelf holds. Default: off. */
    readonly shelfBytes?: number | undefined;
  }
  interface EngineStores {
    readonly shelf?: TierStore | undefined;
  }
}

export const SHELF: Tier = addTierName('shelf', 'Shelf');

export class ShelfStore implements TierStore {
  readonly tier: Tier = SHELF;
  readonly capacityBytes: number;
  readonly verifies = { onWrite: false, onRead: true };
  readonly #ledger: SlotLedger;
  readonly #bytes: Map<number, Uint8Array> = new Map();
  #isDisposed = false;

  constructor(shape: PoolShape) {
    this.capacityBytes = shape.capacityBytes;
    this.#ledger = new SlotLedger(shape);
  }

  describe(): Record<string, string | number> {
    return { store: 'shelf', slots: this.#bytes.size };
  }

  /** The bytes in the slot, where some were written. */
  bytesAt(slot: number): Uint8Array | undefined {
    return this.#bytes.get(slot);
  }

  /** Changes a bit of the block that was written first. */
  flipOne(): void {
    const [bytes] = this.#bytes.values();
    bytes[9] ^= 4;
  }

  write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#each(items, ended, (item) => {
      const refusal = this.#ledger.refuseWrite(item);
      if (refusal !== undefined) return refusal;
      this.#ledger.take(item);
      this.#bytes.set(item.slot, item.bytes.slice());
      this.#ledger.fill(item);
      return loaded;
    });
  }

  read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#each(items, ended, (item) => {
      const refusal = this.#ledger.refuseRead(item);
      if (refusal !== undefined) return refusal;
      const bytes = this.#bytes.get(item.slot) as Uint8Array;
      const { lo, hi } = hostDigest(bytes);
      if (item.checkedLater !== true && (lo !== item.digest.lo || hi !== item.digest.hi))
        return corrupt('other bytes');
      item.bytes.set(bytes);
      return loaded;
    });
  }

  async #each(
    items: readonly StoreItem[],
    ended: ItemEnded | undefined,
    act: (item: StoreItem) => StoreResult,
  ): Promise<readonly StoreResult[]> {
    const results = items.map((item) => {
      if (this.#isDisposed) return refused('the shelf is disposed');
      const slotBytes = this.#ledger.shape.slotBytes[item.sizeClass];
      const isWhole = slotBytes === undefined || item.bytes.byteLength === slotBytes;
      return this.#ledger.misplaced(item) ?? (isWhole ? act(item) : refused('not a whole slot'));
    });
    await undefined;
    results.forEach((result, index) => void ended?.(index, result));
    return results;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
  }
}

/** The shelf that was opened last. */
export const opened: { shelf?: ShelfStore } = {};

export const shelfTier: TierRow<{ readonly shelfBytes?: number | undefined }> = {
  name: 'shelf',
  title: 'Shelf',
  optionNames: ['shelfBytes'],
  fieldNames: { 'shelf.capacityBytes': 'shelfBytes' },
  canBeTop: false,
  asked: {
    size: { option: 'shelf', about: 'a shelf, in blocks, 0 for none' },
    options: (shelfBytes) => ({ shelfBytes }),
  },
  check() {},
  wish: ({ shelfBytes }) =>
    shelfBytes === undefined ? undefined : { field: 'shelfBytes', bytes: shelfBytes },
  async open({ shape }) {
    const store = new ShelfStore(shape);
    opened.shelf = store;
    return { store, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() };
  },
};
