/**
 * The contract of a tier store (src/runtime/tier/tierStore.ts) as tests. Every store passes it, also the
 * modeled one that moves no bytes: the answers are the same for all stores, and only bytes are compared or
 * not (`movesBytes`).
 *
 *     tierContract('memory', async (shape) => ({ store: await MemoryStore.open(shape), movesBytes: true }));
 *
 * It needs vitest, an optional peer of this package.
 */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as is from '../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../runtime/options.ts';
import { type PoolShape, poolShape } from '../runtime/tables/slotPool.ts';
import { Outcome, outcomeNames, tierNames } from '../runtime/tier/tier.ts';
import type { StoreItem, StoreResult, TierStore } from '../runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords, patternItem, SeededRandom, testSeed } from './patternItems.ts';

function bytesOfSlots(trial: Trial): void {
  const { item, write, read, readBack, fullPool, shape } = trial;

  it('describes itself in plain facts', () => {
    expect(trial.store.capacityBytes).toBe(shape.capacityBytes);
    expect(tierNames[trial.store.tier], 'its tier has a name').toBeDefined();
    const facts = Object.values(trial.store.describe());
    expect(facts.length).toBeGreaterThan(0);
    for (const fact of facts) expect(['string', 'number', 'boolean']).toContain(typeof fact);
  });

  it('returns every slot of every size class as it was written, in one large batch', async () => {
    const items = fullPool(1);
    expect(new Set(await write(...items))).toEqual(new Set(['loaded']));
    const targets = items.map((written) => emptyItem(written));
    expect(new Set(await read(...targets))).toEqual(new Set(['loaded']));
    if (trial.tier.movesBytes) for (const target of targets) expect(mismatchedWords(target)).toBe(0);
  });

  it('answers in the order of the items, with a reason for each item that was not loaded', async () => {
    await trial.store.write([item(0, 0, 5)]);
    const results = await trial.store.read([
      item(shape.slotsPerPageMax, 0, 1),
      emptyItem(item(0, 0, 5)),
      item(0, 0, 4),
    ]);
    expect(outcomes(results)).toEqual(['missing', 'loaded', 'refused']);
    expect(results.map((result) => result.reason === '')).toEqual([false, true, false]);
    expect(await trial.store.write([])).toEqual([]);
    expect(await trial.store.read([])).toEqual([]);
  });

  it("touches no other bytes than the slot's", async () => {
    const items = fullPool(1);
    await trial.store.write(items);
    const rewritten = items.map((old) => (old.slot % 3 === 1 ? item(old.slot, old.sizeClass, 2) : old));
    for (const changed of rewritten.filter((one) => one.generation === 2)) await trial.store.write([changed]);
    for (const one of rewritten) expect(await readBack(one)).toBe('loaded');
  });

  it('keeps a copy: a change of the source after a write does not reach the slot', async () => {
    const source = item(0, 0, 1);
    await trial.store.write([source]);
    source.bytes.fill(0x5a);
    expect(await readBack(item(0, 0, 1))).toBe('loaded');
  });

  it('writes from and reads into bytes at any offset of their buffer', async () => {
    const source = item(0, 0, 1);
    for (const byteOffset of [1, 4, 100, 4096]) {
      const room = new Uint8Array(source.bytes.byteLength + byteOffset + 8).fill(0x77);
      const bytes = room.subarray(byteOffset, byteOffset + source.bytes.byteLength);
      bytes.set(source.bytes);
      expect(await write({ ...source, bytes })).toEqual(['loaded']);
      if (trial.tier.movesBytes) bytes.fill(0);
      expect(await read({ ...source, bytes })).toEqual(['loaded']);
      expect(Buffer.compare(bytes, source.bytes)).toBe(0);
      expect(room.subarray(0, byteOffset).every((byte) => byte === 0x77)).toBe(true);
      expect(room.subarray(byteOffset + bytes.byteLength).every((byte) => byte === 0x77)).toBe(true);
    }
  });

  it('answers missing for a slot that was never written, also next to written slots', async () => {
    expect(await read(item(0, 0, 1))).toEqual(['missing']);
    const last = shape.slotBytes.length - 1;
    await trial.store.write([item(0, last, 1), item(2, last, 1)]);
    expect(await read(item(1, last, 1))).toEqual(['missing']);
  });

  it('refuses places outside of its pool', async () => {
    const good = item(0, 0, 1);
    const missingClass = { ...good, sizeClass: shape.slotBytes.length };
    const beyond = { ...good, slot: shape.slotLimit };
    const pastPage = { ...good, slot: shape.slotsPerPage[0] };
    const noGeneration = { ...good, generation: 0 };
    const all = [missingClass, beyond, pastPage, { ...good, slot: -1 }, { ...good, slot: 0.5 }, noGeneration];
    expect(new Set(await write(...all))).toEqual(new Set(['refused']));
    expect(new Set(await read(...all))).toEqual(new Set(['refused']));
    expect(await read(good)).toEqual(['missing']);
  });

  it('refuses bytes of another length than the slot', async ({ skip }) => {
    skip(!trial.tier.movesBytes, 'moves no bytes');
    const good = item(0, 0, 1);
    const short = { ...good, bytes: good.bytes.subarray(4) };
    expect(await write(short)).toEqual(['refused']);
    await trial.store.write([good]);
    expect(await read(short)).toEqual(['refused']);
    expect(await readBack(good)).toBe('loaded');
  });
}

// ---- calls and their ends: each item ends once, calls on one slot exclude each other or share it, and a store
// that is disposed of ends every call in flight

function callsInFlight(trial: Trial): void {
  const { item, write, read, readBack, fullPool } = trial;

  it('reports each item once, as it ends, with the same result as the call', async () => {
    const items = fullPool(1);
    for (const act of ['write', 'read'] as const) {
      const told = new Map<number, StoreResult>();
      let returned = false;
      const ending = trial.store[act](items, (index, result) => {
        expect(returned, 'reported after the call has returned').toBe(true);
        expect(told.has(index), `item ${index} ended twice`).toBe(false);
        told.set(index, result);
      });
      returned = true;
      const results = await ending;
      expect(told.size).toBe(items.length);
      results.forEach((result, index) => {
        expect(told.get(index)).toEqual(result);
      });
    }
  });

  it('has unlocked a slot when it reports the end of its item', async () => {
    const items = fullPool(1);
    const again: Promise<readonly StoreResult[]>[] = [];
    await trial.store.write(items, (index) => {
      const { slot, sizeClass } = items[index];
      again.push(trial.store.write([item(slot, sizeClass, 2)]));
    });
    for (const ends of await Promise.all(again)) expect(outcomes(ends)).toEqual(['loaded']);
    for (const { slot, sizeClass } of items) expect(await readBack(item(slot, sizeClass, 2))).toBe('loaded');
  });

  it('refuses a call on a slot that another call is still writing, and changes nothing', async () => {
    const first = item(0, 0, 1);
    const ends = await Promise.all([
      trial.store.write([first]),
      trial.store.write([item(0, 0, 2)]),
      trial.store.read([emptyItem(first)]),
    ]);
    const [one, two, three] = ends.flatMap(outcomes);
    expect(one).toBe('loaded');
    expect(['loaded', 'refused']).toContain(two);
    expect(['loaded', 'refused']).toContain(three);
    const holds = two === 'loaded' ? 2 : 1;
    expect(await readBack(item(0, 0, holds))).toBe('loaded');
    expect(await write(item(0, 0, 3))).toEqual(['loaded']);
  });

  it('lets several calls read one slot at once', async () => {
    await trial.store.write([item(0, 0, 1)]);
    const targets = [1, 2, 3].map(() => emptyItem(item(0, 0, 1)));
    const ends = await Promise.all(targets.map((target) => trial.store.read([target])));
    expect(ends.flatMap(outcomes)).toEqual(['loaded', 'loaded', 'loaded']);
    if (trial.tier.movesBytes) for (const target of targets) expect(mismatchedWords(target)).toBe(0);
  });

  const seed = testSeed(20261);
  it(`agrees with a map, under many batches in random order in flight (seed ${seed})`, async () => {
    const random = new SeededRandom(seed);
    const places = fullPool(1);
    const generations = new Map<number, number>();
    const checks: Promise<void>[] = [];
    const busy = new Set<number>();
    for (let step = 0; step < 300; step++) {
      const drawn = random.distinctBelow(places.length, 1 + random.below(12)).map((index) => places[index]);
      if (random.chance(0.05)) await Promise.all(checks);
      const chosen = drawn.filter(({ slot }) => !busy.has(slot));
      for (const { slot } of chosen) busy.add(slot);
      const writes = random.chance(0.5);
      const items: StoreItem[] = [];
      const wanted: string[] = [];
      for (const { slot, sizeClass } of chosen) {
        const current = generations.get(slot) ?? 0;
        const generation = Math.max(1, current + random.below(4) - 1);
        if (writes && generation >= current) generations.set(slot, generation);
        items.push(writes ? item(slot, sizeClass, generation) : emptyItem(item(slot, sizeClass, generation)));
        wanted.push(expectedEnd(writes, generation, current));
      }
      const check = async (): Promise<void> => {
        const ends = outcomes(await (writes ? trial.store.write(items) : trial.store.read(items)));
        for (const { slot } of chosen) busy.delete(slot);
        expect(ends, `step ${step}`).toEqual(wanted);
        if (writes || !trial.tier.movesBytes) return;
        items.forEach((target, index) => {
          if (ends[index] === 'loaded') expect(mismatchedWords(target), `step ${step}`).toBe(0);
        });
      };
      checks.push(check());
    }
    await Promise.all(checks);
  });

  it('ends calls in flight when disposed of, also twice, and refuses later calls', async () => {
    const items = fullPool(1);
    await trial.store.write(items);
    const inFlight = [trial.store.read(items.map((one) => emptyItem(one))), trial.store.write(items)];
    await Promise.all([trial.store[Symbol.asyncDispose](), trial.store[Symbol.asyncDispose]()]);
    for (const ends of (await Promise.all(inFlight)).map(outcomes)) {
      for (const end of ends) expect(['loaded', 'refused', 'cancelled']).toContain(end);
    }
    await trial.store[Symbol.asyncDispose]();
    expect(await write(item(0, 0, 2))).toEqual(['refused']);
    expect(await read(item(0, 0, 1))).toEqual(['refused']);
  });
}

function expectedEnd(writes: boolean, generation: number, current: number): string {
  if (generation < current) return 'refused';
  if (writes) return 'loaded';
  if (current === 0) return 'missing';
  return generation > current ? 'corrupt' : 'loaded';
}

// ---- generations: a slot holds the latest generation written to it; older ones are refused, newer ones are
// corrupt, and bytes of a former division of the page are never served

function generationsOfSlots(trial: Trial): void {
  const { item, write, read, readBack, shape } = trial;

  it('refuses an older generation than the slot holds as stale, and changes nothing', async () => {
    const current = item(0, 0, 7);
    await trial.store.write([current]);
    const isStale = [expect.objectContaining({ outcome: Outcome.REFUSED, isStale: true })];
    expect(await trial.store.write([item(0, 0, 6)])).toEqual(isStale);
    expect(await trial.store.read([emptyItem(item(0, 0, 6))])).toEqual(isStale);
    expect(await readBack(current)).toBe('loaded');
  });

  it('answers corrupt to a read of a newer generation than the slot holds', async () => {
    await trial.store.write([item(0, 0, 7)]);
    expect(await read(item(0, 0, 8))).toEqual(['corrupt']);
    expect(await readBack(item(0, 0, 7))).toBe('loaded');
  });

  it('gives the slot to a newer generation, and drops the old one', async () => {
    await trial.store.write([item(0, 0, 1)]);
    expect(await write(item(0, 0, 9))).toEqual(['loaded']);
    expect(await readBack(item(0, 0, 9))).toBe('loaded');
    expect(await read(item(0, 0, 1))).toEqual(['refused']);
  });

  it('never serves bytes from before a page was divided into slots of another size', async () => {
    const small = shape.slotBytes.length - 1;
    await trial.store.write([item(0, small, 1), item(1, small, 1)]);
    expect(await read(item(0, 0, 1))).toEqual(['corrupt']);
    await trial.store.write([item(0, 0, 2)]);
    expect(await read(item(1, small, 1))).toEqual(['missing']);
    expect(await readBack(item(0, 0, 2))).toBe('loaded');
    await trial.store.write([item(0, small, 3)]);
    expect(await read(item(1, small, 1))).toEqual(['missing']);
  });

  it('answers corrupt if the bytes in the slot turn out to be of an older generation', async ({ skip }) => {
    if (trial.tier.setGeneration === undefined) return skip('setGeneration was not given');
    const current = item(0, 0, 4);
    await trial.store.write([current]);
    await trial.tier.setGeneration(0, 0, 3);
    expect(await read(emptyItem(current))).toEqual(['corrupt']);
  });
}

// ---- the suite

/** Options of `tierContract` beside name and store. */
export interface TierContractOptions {
  /** Slot sizes must be multiples of this number of bytes. Default 4. */
  readonly granuleBytes?: number;
}

const tierContractOptionsTable = optionTable(
  { granuleBytes: is.optional(is.passed()) } satisfies Kinds<TierContractOptions>,
  'TKV_CONFIG',
);

const size = (wanted: number, granule: number): number => Math.ceil(wanted / granule) * granule;

/** Registers the suite under `name`. @param make opens a new, empty store of the given shape */
export function tierContract(
  name: string,
  make: (shape: PoolShape) => TierUnderTest | Promise<TierUnderTest>,
  options: TierContractOptions = {},
): void {
  checkInputs(
    { name, make, options },
    { name: is.text(), make: is.func(), options: is.optional(is.object()) },
  );
  tierContractOptionsTable.read(options);
  const granule = options.granuleBytes ?? 4;
  const shapes: Record<string, PoolShape> = {
    'sizes of powers of two': poolShape(6, 65536, [65536, 16384, size(1024, granule)]),
    'sizes that divide no page evenly': poolShape(5, size(20_000, granule), [
      size(12_292, granule),
      size(1004, granule),
    ]),
  };
  for (const [shapeName, shape] of Object.entries(shapes)) {
    describe(`tier contract: ${name}, ${shapeName}`, () => {
      const trial = storeOnTrial(shape, make);
      bytesOfSlots(trial);
      generationsOfSlots(trial);
      verificationOfReads(trial);
      callsInFlight(trial);
    });
  }
}

// ---- a store on trial, opened anew for each test

/** A store under the contract, and what it promises. */
export interface TierUnderTest {
  readonly store: TierStore;
  /** False for a store that only models transfers: its reads leave `bytes` alone. */
  readonly movesBytes: boolean;
  /** Whether a read with another key than the slot's ends as `corrupt`. Default false. */
  readonly remembersKeys?: boolean;
  /**
   * Whether the store keeps the digest of each slot, so that a read with another digest ends as `corrupt`
   * even if bytes are not verified. Default false.
   */
  readonly remembersDigests?: boolean;
  /** Whether a read is checked in full also where its receiver would check it. Default false. */
  readonly checksAlways?: boolean;
  /** Flips one bit of the slot's bytes without the store's knowledge. */
  flipBit?(slot: number, sizeClass: number, byteIndex: number): void | Promise<void>;
  /** Changes the generation of the slot's bytes without the store's knowledge. */
  setGeneration?(slot: number, sizeClass: number, generation: number): void | Promise<void>;
  /** Frees what `make` opened beside the store, after the store is disposed of. */
  dispose?(): void | Promise<void>;
}

interface Trial {
  readonly shape: PoolShape;
  /** The store of the running test, with what is known of it. */
  readonly tier: TierUnderTest;
  readonly store: TierStore;
  readonly item: (slot: number, sizeClass: number, generation: number) => StoreItem;
  /** @returns the outcome of each item, by name */
  readonly write: (...items: StoreItem[]) => Promise<string[]>;
  readonly read: (...items: StoreItem[]) => Promise<string[]>;
  /** Reads `written` back. @returns the outcome; if it is `loaded` the bytes were compared */
  readonly readBack: (written: StoreItem) => Promise<string>;
  /** One item for every slot of the pool. Page p has size class p modulo the number of classes. */
  readonly fullPool: (generation: number) => StoreItem[];
}

/** Opens a store before each test and disposes of it after. Call it within `describe`. */
function storeOnTrial(
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
      expect(mismatchedWords(target), `wrong words in slot ${written.slot}`).toBe(0);
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

function outcomes(results: readonly StoreResult[]): string[] {
  return results.map((result) => {
    expect(result.reason === '', result.reason).toBe(result.outcome === Outcome.LOADED);
    return outcomeNames[result.outcome];
  });
}

// ---- verification: digest, key and every bit are compared, as far as the store says so

function verificationOfReads(trial: Trial): void {
  const { item, write, read, readBack } = trial;

  it('checks the digest of bytes that arrive, if it says that it does', async () => {
    const good = item(0, 0, 1);
    const wrong = { lo: good.digest.lo ^ 1, hi: good.digest.hi };
    const lied = await write({ ...good, digest: wrong });
    expect(lied).toEqual([trial.store.verifies.onWrite ? 'corrupt' : 'loaded']);
    if (trial.store.verifies.onWrite)
      expect(['missing', 'corrupt']).toContain((await read(emptyItem(good)))[0]);
    expect(await write(item(0, 0, 2))).toEqual(['loaded']);
    expect(await read(emptyItem(item(0, 0, 2), wrong))).toEqual([
      trial.store.verifies.onRead || trial.tier.remembersDigests === true ? 'corrupt' : 'loaded',
    ]);
    expect(await readBack(item(0, 0, 2))).toBe('loaded');
  });

  it('answers corrupt to a read with another key, if it remembers keys', async () => {
    const good = item(0, 0, 1);
    await trial.store.write([good]);
    for (let lane = 0; lane < 4; lane++) {
      const key = good.key.slice();
      key[lane] = key[lane] ^ 0x8000_0000;
      expect(await read({ ...emptyItem(good), key })).toEqual([
        trial.tier.remembersKeys === true ? 'corrupt' : 'loaded',
      ]);
    }
  });

  it('notices one flipped bit anywhere in the bytes, if it verifies reads', async ({ skip }) => {
    skip(!trial.store.verifies.onRead, 'does not verify reads');
    if (trial.tier.flipBit === undefined) return skip('flipBit was not given');
    const good = item(0, 0, 1);
    await trial.store.write([good]);
    const length = good.bytes.byteLength;
    for (const byteIndex of [0, 1, 511, length >> 1, length - 4, length - 1]) {
      await trial.tier.flipBit(0, 0, byteIndex);
      expect(await readBack(good), `byte ${byteIndex}`).toBe('corrupt');
      await trial.tier.flipBit(0, 0, byteIndex);
      expect(await readBack(good)).toBe('loaded');
    }
  });

  it('leaves the digest of an item that is checked later to its receiver, and still checks the place', async ({
    skip,
  }) => {
    skip(!trial.tier.movesBytes, 'moves no bytes that could be checked later');
    if (trial.tier.flipBit === undefined) return skip('flipBit was not given');
    const good = item(0, 0, 1);
    await trial.store.write([good]);
    await trial.tier.flipBit(0, 0, 5);
    const target = { ...emptyItem(good), checkedLater: true };
    const checksAlways = trial.tier.checksAlways === true;
    expect(await read(target)).toEqual([checksAlways ? 'corrupt' : 'loaded']);
    if (checksAlways) return;
    expect(target.bytes[5]).not.toBe(good.bytes[5]);
    expect(await read({ ...target, generation: 2 })).toEqual(['corrupt']);
    if (trial.tier.remembersKeys !== true) return;
    expect(await read({ ...target, key: good.key.map((word) => word ^ 1) })).toEqual(['corrupt']);
  });
}
