/**
 * A store on trial: opened anew for each test, and the few steps of which the tests of the contract are made.
 */

import { afterEach, beforeEach, expect } from 'vitest';
import type { PoolShape } from '../../runtime/pool/shape.ts';
import type { StoreItem, StoreResult, TierStore } from '../../runtime/tier/tierStore.ts';
import { Outcome, outcomeNames } from '../../runtime/transfer/outcome.ts';
import { emptyItem, mismatchedWords, patternItem } from '../patternItems.ts';

export interface TierUnderTest {
  readonly store: TierStore;
  /** False for a store that only models transfers: its reads leave `bytes` alone. */
  readonly movesBytes: boolean;
  /** Whether a read under another key than the slot was written with ends as `corrupt`. Default false. */
  readonly remembersKeys?: boolean;
  /**
   * Whether what lies in a slot names its digest, so that a read for another one ends as `corrupt` unverified
   * too. Default false.
   */
  readonly remembersDigests?: boolean;
  /** Changes one bit of what lies in the slot, behind the store's back. */
  flipBit?(slot: number, sizeClass: number, byteIndex: number): void | Promise<void>;
  /** Makes the bytes in the slot those of another generation, behind the store's back. */
  setGeneration?(slot: number, sizeClass: number, generation: number): void | Promise<void>;
  /** Frees what the test itself made, after the store is disposed. */
  dispose?(): void | Promise<void>;
}

export interface Trial {
  readonly shape: PoolShape;
  /** The one of the test that runs. */
  readonly tier: TierUnderTest;
  readonly store: TierStore;
  readonly item: (slot: number, sizeClass: number, generation: number) => StoreItem;
  /** @returns the outcome of each item, by name */
  readonly write: (...items: StoreItem[]) => Promise<string[]>;
  readonly read: (...items: StoreItem[]) => Promise<string[]>;
  /** The outcome of reading `written` back; where it is `loaded`, the bytes have been compared too. */
  readonly readBack: (written: StoreItem) => Promise<string>;
  /** One item for every slot of the pool, page p cut into size class p modulo the number of classes. */
  readonly fullPool: (generation: number) => StoreItem[];
}

/** Call it within `describe`: it opens a store before each test, and disposes of it behind each. */
export function storeOnTrial(
  shape: PoolShape,
  make: (shape: PoolShape) => TierUnderTest | Promise<TierUnderTest>,
): Trial {
  let tier: TierUnderTest;
  beforeEach(async () => {
    tier = await make(shape);
  });
  afterEach(async () => {
    await tier.store[Symbol.asyncDispose]();
    await tier.dispose?.();
  });

  const item = (slot: number, sizeClass: number, generation: number): StoreItem =>
    patternItem(shape, slot, sizeClass, generation);
  const write = async (...items: StoreItem[]): Promise<string[]> => outcomes(await tier.store.write(items));
  const read = async (...items: StoreItem[]): Promise<string[]> => outcomes(await tier.store.read(items));
  const readBack = async (written: StoreItem): Promise<string> => {
    const target = emptyItem(written);
    const [outcome] = await read(target);
    if (outcome === 'loaded' && tier.movesBytes) {
      expect(mismatchedWords(target), `words of slot ${written.slot} that are wrong`).toBe(0);
    }
    return outcome;
  };
  const fullPool = (generation: number): StoreItem[] => {
    const items: StoreItem[] = [];
    for (let page = 0; page < shape.pages; page++) {
      const sizeClass = page % shape.slotBytes.length;
      for (let index = 0; index < shape.slotsPerPage[sizeClass]; index++) {
        items.push(item(page * shape.slotsPerPageMax + index, sizeClass, generation));
      }
    }
    return items;
  };
  return {
    shape,
    get tier() {
      return tier;
    },
    get store() {
      return tier.store;
    },
    item,
    write,
    read,
    readBack,
    fullPool,
  };
}

export function outcomes(results: readonly StoreResult[]): string[] {
  return results.map((result) => {
    expect(result.reason === '', result.reason).toBe(result.outcome === Outcome.LOADED);
    return outcomeNames[result.outcome];
  });
}
