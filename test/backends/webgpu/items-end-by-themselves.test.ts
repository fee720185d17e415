import { afterEach, describe, expect, it, vi } from 'vitest';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../src/runtime/tier/tier.ts';
import type { SlotUse, StoreResult } from '../../../src/runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { testDevice } from './testDevice.ts';

const device = testDevice();

afterEach(() => vi.restoreAllMocks());

const UNIT = 64 * 1024;
const shape = poolShape(16, UNIT, [UNIT]);
/** One buffer of one unit for each direction: items go one after the other. */
const narrow = { stagingBytes: UNIT, stagingBuffers: 1 };
const slots = Array.from({ length: 16 }, (_, slot) => slot);
const name = ({ outcome }: StoreResult): string => outcomeNames[outcome];

for (const verifyWrites of ['kernel', 'readback', false] as const) {
  it(`each item of a write or a read ends as soon as its own bytes are in place (verified: ${verifyWrites})`, async () => {
    await using store = await HbmStore.open(device.live, shape, { ...narrow, verifyWrites });
    const items = slots.map((slot) => patternItem(shape, slot, 0, 1));
    for (const call of ['write', 'read'] as const) {
      const wanted = call === 'write' ? items : items.map((item) => emptyItem(item));
      const order: number[] = [];
      let over = false;
      const ended = (index: number, result: StoreResult): void => {
        expect(name(result)).toBe('loaded');
        expect(over, 'an item ends before its call').toBe(false);
        if (call === 'read') {
          expect(mismatchedWords(wanted[index])).toBe(0);
          const later = wanted.slice(index + 2).filter((item) => mismatchedWords(item) === 0);
          expect(later, 'one buffer cannot be far ahead').toEqual([]);
        }
        order.push(index);
      };
      await store[call](wanted, ended);
      over = true;
      expect(order).toEqual(slots);
    }
  });
}

it('items that are refused at once end after the call has returned, before items that take time', async () => {
  await using store = await HbmStore.open(device.live, shape);
  const ends: string[] = [];
  let returned = false;
  const bad = { ...patternItem(shape, 1, 0, 1), generation: 0 };
  const ending = store.write([patternItem(shape, 0, 0, 1), bad], (index, result) => {
    expect(returned).toBe(true);
    ends.push(`${index} ${name(result)}`);
  });
  returned = true;
  await ending;
  expect(ends).toEqual(['1 refused', '0 loaded']);
});

it('a long upload holds up no read, and a long read no upload', async () => {
  await using store = await HbmStore.open(device.live, shape, narrow);
  await store.write(slots.slice(0, 8).map((slot) => patternItem(shape, slot, 0, 1)));
  for (const [long, short] of [
    ['write', 'read'],
    ['read', 'write'],
  ] as const) {
    const many = slots.slice(long === 'write' ? 8 : 0).slice(0, 8);
    const one = long === 'write' ? patternItem(shape, 0, 0, 1) : patternItem(shape, 8, 0, 2);
    let left = many.length;
    const longCall = store[long](
      many.map((slot) => patternItem(shape, slot, 0, 1)),
      () => left--,
    );
    const [end] = await store[short]([one]);
    expect(name(end)).toBe('loaded');
    expect(left, 'the long call is still under way').toBeGreaterThan(0);
    await longCall;
  }
});

describe('a busy slot', () => {
  const item = patternItem(shape, 3, 0, 1);
  const newer = patternItem(shape, 3, 0, 2);
  const seeded = { slot: 3, sizeClass: 0, generation: 1, seedLo: 3, seedHi: 1 };
  const from3 = { sizeClass: 0, fromSlot: 3, fromGeneration: 1, toSlot: 5, toGeneration: 1 };
  const to3 = { sizeClass: 0, fromSlot: 4, fromGeneration: 1, toSlot: 3, toGeneration: 1 };
  type Call = (store: HbmStore) => Promise<readonly StoreResult[]>;
  const goTogether: Record<SlotUse, readonly SlotUse[]> = {
    read: ['read', 'source'],
    device: ['device', 'source'],
    source: ['read', 'device', 'source'],
    write: [],
  };
  const calls: Record<string, { readonly use: SlotUse; readonly call: Call }> = {
    read: { use: 'read', call: (store) => store.read([emptyItem(item)]) },
    countMismatches: { use: 'read', call: (store) => store.countMismatches([seeded]) },
    'copy from it': { use: 'source', call: (store) => store.copy([from3]) },
    seal: { use: 'device', call: (store) => store.seal([seeded]) },
    fillPattern: { use: 'device', call: (store) => store.fillPattern([seeded]) },
    clear: { use: 'device', call: (store) => store.clear([seeded]) },
    'copy to it': { use: 'device', call: (store) => store.copy([to3]) },
    write: { use: 'write', call: (store) => store.write([item]) },
  };
  for (const [first, { use, call }] of Object.entries(calls)) {
    it(`of a ${first} is refused to whatever does not go with it, and free afterwards`, async () => {
      await using store = await HbmStore.open(device.live, shape, { verifyWrites: 'kernel' });
      for (const [second, other] of Object.entries(calls)) {
        if (first === second && first.startsWith('copy')) continue; // the other slot of the copy is busy too
        await store.write([item, patternItem(shape, 4, 0, 1)]);
        const [one, two] = (await Promise.all([call(store), other.call(store)])).flat();
        expect(name(one), `${first}, then ${second}`).toBe('loaded');
        const together = goTogether[use].includes(other.use);
        expect(name(two), `${first}, then ${second}`).toBe(together ? 'loaded' : 'refused');
        if (!together) expect(two.reason).toMatch(/slot 3 is busy/);
      }
      expect(name((await store.write([newer]))[0])).toBe('loaded');
      const target = emptyItem(newer);
      expect(name((await store.read([target]))[0])).toBe('loaded');
      expect(mismatchedWords(target)).toBe(0);
    });
  }

  it('that is refused keeps its bytes and its generation', async () => {
    await using store = await HbmStore.open(device.live, shape);
    await store.write([item]);
    const reading = store.read([emptyItem(item)]);
    const refusals = await Promise.all([store.write([newer]), store.clear([newer]), store.seal([newer])]);
    expect(refusals.flat().map(name)).toEqual(['refused', 'refused', 'refused']);
    await reading;
    const target = emptyItem(item);
    expect(name((await store.read([target]))[0])).toBe('loaded');
    expect(mismatchedWords(target)).toBe(0);
  });
});
