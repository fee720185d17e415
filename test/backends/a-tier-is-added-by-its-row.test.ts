/**
 * The errand "a tier" of CONTRIBUTING, by an embedder: a map in memory behind all other tiers. It keeps the contract of
 * stores, and a runtime uses it by its option, its name and its title alone.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { hostDigest } from '../../src/backends/host/hostDigest.ts';
import { registerTier, type TierRow } from '../../src/backends/index.ts';
import { LogReader, LogWriter, Outcome, replayLog, tierName } from '../../src/runtime/index.ts';
import type { PoolShape } from '../../src/runtime/tables/slotPool.ts';
import { addTierName, tierNames, tierTitle } from '../../src/runtime/tier/tier.ts';
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
import { tierContract } from '../../src/testing/contract.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import {
  blocks,
  cacheBelow,
  contents,
  openHostRuntime,
  prompt,
  promptBlocks,
  rightContents,
  tenant,
  write,
} from '../embed/liveRuntime.ts';

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

const SHELF = addTierName('shelf', 'Shelf');

class ShelfStore implements TierStore {
  readonly tier = SHELF;
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

let shelf: ShelfStore | undefined;
const shelfTier: TierRow<{ readonly shelfBytes?: number | undefined }> = {
  name: 'shelf',
  title: 'Shelf',
  optionNames: ['shelfBytes'],
  fieldNames: { 'shelf.capacityBytes': 'shelfBytes' },
  canBeTop: false,
  check() {},
  wish: ({ shelfBytes }) =>
    shelfBytes === undefined ? undefined : { field: 'shelfBytes', bytes: shelfBytes },
  async open({ shape }) {
    const store = new ShelfStore(shape);
    shelf = store;
    return { store, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() };
  },
};
const unregister = registerTier(shelfTier);

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-shelf-'));
afterAll(() => {
  unregister();
  rmSync(scratch, { recursive: true });
});

tierContract('a map in memory', (shape) => ({ store: new ShelfStore(shape), movesBytes: true }));

/** Every fourth item fails: as missing, refused, or with a bit flipped on its way, which nothing reports. */
function failing(store: TierStore, random: SeededRandom): TierStore {
  const faulty = (use: 'read' | 'write') => async (items: readonly StoreItem[], ended?: ItemEnded) => {
    const spoilt = items.map(() => (random.chance(0.25) ? random.below(3) : -1));
    const given = items.map((item, i) => {
      if (use === 'read' || spoilt[i] !== 0) return item;
      const bytes = item.bytes.slice();
      bytes[random.below(bytes.length)] ^= 1;
      return { ...item, bytes };
    });
    const results = [...(await store[use](given))];
    for (const [i, item] of items.entries()) {
      const isLoaded = results[i].outcome === Outcome.LOADED;
      if (use === 'read' && spoilt[i] === 0) item.bytes[random.below(item.bytes.length)] ^= 1;
      else if (isLoaded && spoilt[i] === 1) results[i] = refused('on purpose');
      else if (isLoaded && spoilt[i] === 2 && use === 'read')
        results[i] = { outcome: Outcome.MISSING, reason: '' };
      ended?.(i, results[i]);
    }
    return results;
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === 'read' || name === 'write') return faulty(name);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

describe('a runtime', () => {
  it('pushes blocks down to it, brings them back, and its log replays byte for byte', async () => {
    const log = join(scratch, 'run.log');
    {
      await using kv = await openHostRuntime({
        nvme: { dir: mkdtempSync(join(scratch, 'disk-')), bytes: blocks(40) },
        shelfBytes: blocks(40),
        log,
      });
      expect(kv.manager.tiers.map((tier) => tierName(tier))).toEqual(['ddr', 'nvme', 'shelf']);
      await cacheBelow(kv, 1, 2);
      expect(kv.lookup(prompt(1), { tenant }).byTier).toEqual([0, 0, promptBlocks]);
      const sequence = await kv.begin(prompt(1), { tenant });
      expect(await contents(kv, sequence)).toEqual(rightContents(1));
      kv.release(sequence);
      expect(kv.describe().shelf).toMatchObject({ store: 'shelf', slots: promptBlocks });
      kv.manager.checkIntegrity();
    }
    const text = readFileSync(log, 'utf8');
    const lines = text.trimEnd().split('\n');
    const head = new LogReader(log);
    head.read(lines[0]);
    let again = '';
    const writer = new LogWriter(head.config, { log: (part) => void (again += part) });
    replayLog(lines, log, writer);
    writer.end();
    expect(again === text).toBe(true);
  });

  it('finds wrong bytes of it on arrival, and computes the block again', async () => {
    await using kv = await openHostRuntime({ shelfBytes: blocks(40) });
    await cacheBelow(kv, 5, 1);
    shelf!.flipOne();
    const sequence = await kv.begin(prompt(5), { tenant });
    expect(kv.manager.counters.loadsFailed[Outcome.CORRUPT]).toBe(1);
    write(kv, sequence, 5);
    await kv.seal(sequence);
    expect(await contents(kv, sequence)).toEqual(rightContents(5));
    kv.release(sequence);
  });

  it('names its option in errors, beside the names of others', async () => {
    await expect(openHostRuntime({ shelfBytes: 10 })).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'shelfBytes',
    });
    await expect(openHostRuntime({ shelfByts: 10 } as never)).rejects.toThrow(/shelfBytes/);
    expect([tierTitle('shelf'), tierNames.at(-1)]).toEqual(['Shelf', 'shelf']);
  });

  it('serves no wrong byte while it fails at random', async () => {
    const random = new SeededRandom(Number(process.env.TIERKV_SEED ?? 1));
    await using kv = await openHostRuntime({
      ddrBytes: blocks(12),
      shelfBytes: blocks(30),
      wrapStores: (stores) => ({ ...stores, shelf: failing(stores.shelf as TierStore, random) }),
    });
    for (let step = 0; step < 60; step++) {
      const seed = 10 * random.below(6);
      const sequence = await kv.begin(prompt(seed), { tenant });
      write(kv, sequence, seed);
      await kv.seal(sequence);
      expect(await contents(kv, sequence)).toEqual(rightContents(seed));
      kv.release(sequence);
    }
    await kv.idle();
    const { loadsFailed } = kv.manager.counters;
    expect(
      loadsFailed[Outcome.CORRUPT] + loadsFailed[Outcome.MISSING] + loadsFailed[Outcome.REFUSED],
    ).toBeGreaterThan(3);
    kv.manager.checkIntegrity();
  });
});
