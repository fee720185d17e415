/**
 * Calls and their ends: each item is told of once, calls on one slot exclude each other or share it, and a
 * store that is disposed of ends whatever is in flight.
 */

import { expect, it } from 'vitest';
import type { StoreItem, StoreResult } from '../../runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords } from '../patternItems.ts';
import { SeededRandom, testSeed } from '../seededRandom.ts';
import { outcomes, type Trial } from './trial.ts';

export function callsInFlight(trial: Trial): void {
  const { item, write, read, readBack, fullPool } = trial;

  it('tells of each item once, as it ends, with the result that the call has for it', async () => {
    const items = fullPool(1);
    for (const act of ['write', 'read'] as const) {
      const told = new Map<number, StoreResult>();
      let returned = false;
      const ending = trial.store[act](items, (index, result) => {
        expect(returned, 'told after the call has returned').toBe(true);
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

  it('has done with a slot when it tells of its item', async () => {
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
  it(`holds what a map would, under batches in random order and many in flight (seed ${seed})`, async () => {
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

  it('ends calls in flight when disposed of, also twice, and refuses whatever comes later', async () => {
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
