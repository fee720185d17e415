import { expect, it } from 'vitest';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { boxPlan, type HbmStoreOptions } from '../../../src/backends/webgpu/types.ts';
import { digestBytes } from '../../../src/runtime/digest.ts';
import { blockBox, tokenBox } from '../../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../../src/runtime/geometry/layout.ts';
import { countPatternMismatches, fillPattern } from '../../../src/runtime/pattern.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import type { SlotUse, StoreResult } from '../../../src/runtime/tier/tierStore.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { gathered, scatter } from './boxes/boxTruth.ts';
import { testDevice } from './testDevice.ts';

const device = testDevice();

const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 16, dtype: 'f16', blockTokens: 8 });
const block = blockBox(layout, 0);
const bytes = layout.blockBytes;
const shape = poolShape(6, 3 * bytes + 4, [bytes]);

/** What a slot must hold once all calls made so far have taken effect, and the calls that are under way. */
interface Slot {
  readonly slot: number;
  readonly sizeClass: 0;
  generation: number;
  content: Uint8Array;
  use: SlotUse | undefined;
  calls: number;
}

const variants: Record<string, HbmStoreOptions> = {
  'as it is opened': {},
  'with one small buffer, checked by the kernel, a slab a page': {
    verifyWrites: 'kernel',
    stagingBytes: 1000,
    stagingBuffers: 1,
    slabBytesMax: 4,
  },
  'with two small buffers, checked by readback, boxes by kernels': {
    verifyWrites: 'readback',
    boxPath: 'kernel',
    stagingBytes: 3000,
    stagingBuffers: 2,
    slabBytesMax: 2 * shape.pageBytes,
  },
};

const seed = testSeed(611);
for (const [name, options] of Object.entries(variants)) {
  it(`calls that may overlap leave what they would leave one after the other: ${name} (seed ${seed})`, async () => {
    const random = new SeededRandom(seed);
    await using store = await HbmStore.open(device.live, shape, options);
    const slots: Slot[] = Array.from({ length: shape.slotLimit }, (_, slot) => ({
      slot,
      sizeClass: 0,
      generation: 1,
      content: new Uint8Array(bytes),
      use: undefined,
      calls: 0,
    }));
    expect((await store.clear(slots)).every((end) => end.reason === '')).toBe(true);

    const pattern = (slot: Slot): Uint8Array => {
      const words = new Uint32Array(bytes / 4);
      fillPattern(words, slot.slot, slot.generation);
      return new Uint8Array(words.buffer);
    };
    const key = new Uint32Array(4);
    const digest = { lo: 0, hi: 0 };
    const seeded = (slot: Slot) => ({ ...slot, seedLo: slot.slot, seedHi: slot.generation });
    type Check = (end: StoreResult) => void;
    /** Each takes effect on the model at once, and says what must be true at its end. */
    const kinds: Record<
      string,
      { use: SlotUse; make(slot: Slot): [Promise<readonly StoreResult[]>, Check] }
    > = {
      write: {
        use: 'write',
        make(slot) {
          slot.generation++;
          slot.content = pattern(slot);
          const item = { ...slot, key, digest: digestBytes(slot.content), bytes: slot.content.slice() };
          return [store.write([item]), () => {}];
        },
      },
      read: {
        use: 'read',
        make(slot) {
          const found = new Uint8Array(bytes);
          const wanted = slot.content;
          const read = store.read([{ ...slot, key, digest, bytes: found }]);
          return [read, () => expect(Buffer.compare(found, wanted)).toBe(0)];
        },
      },
      fillPattern: {
        use: 'device',
        make(slot) {
          slot.generation++;
          slot.content = pattern(slot);
          return [store.fillPattern([seeded(slot)]), () => {}];
        },
      },
      clear: {
        use: 'device',
        make(slot) {
          slot.generation++;
          slot.content = new Uint8Array(bytes);
          return [store.clear([{ ...slot }]), () => {}];
        },
      },
      seal: {
        use: 'device',
        make(slot) {
          const wanted = digestBytes(slot.content);
          return [store.seal([{ ...slot }]), (end) => expect(end).toMatchObject({ digest: wanted })];
        },
      },
      countMismatches: {
        use: 'read',
        make(slot) {
          const words = new Uint32Array(slot.content.slice().buffer);
          const mismatchedWords = countPatternMismatches(words, slot.slot, slot.generation);
          const check = store.countMismatches([seeded(slot)]);
          return [check, (end) => expect(end).toMatchObject({ mismatchedWords })];
        },
      },
      readBoxes: {
        use: 'read',
        make(slot) {
          const box = tokenBox(layout, random.below(3), 3 + random.below(5));
          const plan = boxPlan(layout, box);
          const found = new Uint8Array(plan.boxBytes);
          const wanted = gathered(layout, box, block, slot.content);
          const read = store.readBoxes([{ ...slot, plan, bytes: found }]);
          return [read, () => expect(Buffer.compare(found, wanted)).toBe(0)];
        },
      },
      writeBoxes: {
        use: 'write',
        make(slot) {
          const box = tokenBox(layout, random.below(3), 3 + random.below(5));
          const plan = boxPlan(layout, box);
          const fresh = new Uint8Array(plan.boxBytes).fill(random.below(256));
          slot.content = slot.content.slice();
          scatter(layout, box, block, slot.content, fresh);
          return [store.writeBoxes([{ ...slot, plan, bytes: fresh }]), () => {}];
        },
      },
    };

    const underWay: Promise<void>[] = [];
    const begin = (slot: Slot, use: SlotUse): void => {
      slot.use = use;
      slot.calls++;
    };
    const end = (slot: Slot): void => {
      if (--slot.calls === 0) slot.use = undefined;
    };
    const free = (slot: Slot, use: SlotUse): boolean =>
      slot.use === undefined || (slot.use === use && use !== 'write');
    const counts = new Map<string, number>();
    for (let step = 0; step < 600; step++) {
      const follow = async (call: Promise<readonly StoreResult[]>, check: Check, busy: Slot[]) => {
        const [result] = await call;
        for (const slot of busy) end(slot);
        expect(result.reason, `step ${step}`).toBe('');
        check(result);
      };
      const slot = slots[random.below(slots.length)];
      if (random.chance(0.15)) {
        const to = slots[random.below(slots.length)];
        if (to === slot || !free(slot, 'read') || !free(to, 'device')) continue;
        begin(slot, 'read');
        begin(to, 'device');
        to.generation++;
        to.content = slot.content;
        const [fromSlot, fromGeneration] = [slot.slot, slot.generation];
        const [toSlot, toGeneration] = [to.slot, to.generation];
        const copy = store.copy([{ sizeClass: 0, fromSlot, fromGeneration, toSlot, toGeneration }]);
        underWay.push(follow(copy, () => {}, [slot, to]));
        counts.set('copy', (counts.get('copy') ?? 0) + 1);
      } else {
        const names = Object.keys(kinds);
        const chosen = names[random.below(names.length)];
        const { use, make } = kinds[chosen];
        if (!free(slot, use)) continue;
        begin(slot, use);
        const [call, check] = make(slot);
        underWay.push(follow(call, check, [slot]));
        counts.set(chosen, (counts.get(chosen) ?? 0) + 1);
      }
      if (random.chance(0.1)) await Promise.all(underWay.splice(0));
      else if (random.chance(0.2)) await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(underWay);
    expect(counts.size).toBe(9);
    for (const slot of slots) {
      const found = new Uint8Array(bytes);
      const [read] = await store.read([{ ...slot, key, digest, bytes: found }]);
      expect(read.reason).toBe('');
      expect(Buffer.compare(found, slot.content), `slot ${slot.slot}`).toBe(0);
    }
  });
}
