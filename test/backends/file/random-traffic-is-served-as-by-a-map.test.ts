import { describe, expect, it } from 'vitest';
import { FileStore } from '../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../src/backends/file/opening.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../src/runtime/tier/tier.ts';
import type { StoreItem } from '../../../src/runtime/tier/tierStore.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { scratchDir } from './scratch.ts';

const seed = testSeed(4711);
const pool = poolShape(625, 16 * 256, [256]);
const kinds: Record<string, FileStoreOptions> = {
  'whole, direct': {},
  'whole, direct, warm restarts': { restart: 'warm', syncBytes: 2 ** 20, checkpointBytes: 2 ** 22 },
  'extents, buffered': { allocation: 'extents', mode: 'buffered', extentBytes: 2 ** 20 },
};

describe('file store, random traffic', () => {
  for (const [kind, options] of Object.entries(kinds)) {
    it(`serves 10,000 slots as a map would, calls overlapping (${kind}, seed ${seed})`, async () => {
      const random = new SeededRandom(seed);
      const model = new Map<number, number>();
      const busy = new Set<number>();
      await using store = await FileStore.open(scratchDir(), pool, options);
      let inFlight: Promise<void>[] = [];
      let moved = 0;
      for (let step = 0; step < sized(200, 400); step++) {
        const writes = random.chance(0.6);
        const drawn = random.distinctBelow(pool.slotLimit, 1 + random.below(100));
        const slots = drawn.filter((slot) => !busy.has(slot));
        for (const slot of slots) busy.add(slot);
        const wanted = slots.map((slot) => (writes || model.has(slot) ? 'loaded' : 'missing'));
        const items: StoreItem[] = slots.map((slot) => {
          const generation = writes ? (model.get(slot) ?? 0) + 1 : Math.max(1, model.get(slot) ?? 1);
          if (writes) model.set(slot, generation);
          const item = patternItem(pool, slot, 0, generation);
          return writes ? item : emptyItem(item);
        });
        moved += items.length;
        const check = async (): Promise<void> => {
          const free = (index: number): void => void busy.delete(slots[index]);
          const results = await (writes ? store.write(items, free) : store.read(items, free));
          expect(results.map((result) => outcomeNames[result.outcome])).toEqual(wanted);
          const wrong = items.filter(
            (item, index) => results[index].outcome === 0 && mismatchedWords(item) !== 0,
          );
          expect(wrong).toEqual([]);
        };
        inFlight.push(check());
        if (random.chance(0.1)) {
          await Promise.all(inFlight);
          store.checkIntegrity();
          inFlight = [];
        }
      }
      await Promise.all(inFlight);
      store.checkIntegrity();
      expect(moved).toBeGreaterThan(sized(7_000, 15_000));
    });
  }
});
