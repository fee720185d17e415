import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { hardwareRule, softwareRule } from '../../../../src/backends/webgpu/boxes.ts';
import { HbmStore } from '../../../../src/backends/webgpu/hbmStore.ts';
import { type BoxItem, boxPlan, type HbmStoreOptions } from '../../../../src/backends/webgpu/types.ts';
import { digestBytes } from '../../../../src/runtime/digest.ts';
import { blockBox, tokenBox } from '../../../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../../../src/runtime/geometry/layout.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import type { StoreItem } from '../../../../src/runtime/tier/tierStore.ts';
import { emptyItem, patternItem } from '../../../../src/testing/index.ts';
import { testDevice } from '../testDevice.ts';
import { expectLoaded, expectPool, fillPool, gathered, names, scatter } from './boxTruth.ts';

const device = testDevice();

const layout = kvLayout({ layers: 4, kvHeads: 2, headDim: 8, dtype: 'f16', blockTokens: 8 });
const block = blockBox(layout, 0);
const box = tokenBox(layout, 3, 5);
const plan = boxPlan(layout, box);
/** Pages of one block, or of four slots too small for one. */
const shape = poolShape(64, layout.blockBytes, [layout.blockBytes, layout.blockBytes / 4]);
const slotOf = (page: number): number => page * shape.slotsPerPageMax;

const boxItem = (slot: number, generation: number, fill = 0xee): BoxItem => ({
  slot,
  sizeClass: 0,
  generation,
  plan,
  bytes: new Uint8Array(plan.boxBytes).fill(fill),
});

for (const boxPath of ['kernel', 'copies'] as const) {
  describe(`boxes by ${boxPath}`, () => {
    const options: HbmStoreOptions = { boxPath, slabBytesMax: 16 * shape.pageBytes };
    let store: HbmStore;
    let blocks: StoreItem[];
    beforeEach(async () => {
      store = await HbmStore.open(device.live, shape, options);
      blocks = await fillPool(store, shape);
    });
    afterEach(async () => {
      vi.restoreAllMocks();
      await store[Symbol.asyncDispose]();
    });

    it('name a generation: what is stale, missing or another one ends as a read or write of it would', async () => {
      const slot = slotOf(2);
      const other = slotOf(9);
      await store.write([patternItem(shape, slot, 0, 5)]);
      expect(names(await store.readBoxes([4, 5, 6].map((one) => boxItem(slot, one))))).toEqual([
        'refused',
        'loaded',
        'corrupt',
      ]);
      const [stale] = await store.writeBoxes([boxItem(slot, 4)]);
      expect(stale.reason).toMatch(/stale/);
      await expectPool(
        store,
        blocks.map((item) => (item.slot === slot ? patternItem(shape, slot, 0, 5) : item)),
      );

      const small = shape.slotBytes[1];
      const tiny = kvLayout({ layers: 1, kvHeads: 2, headDim: 8, dtype: 'f16', blockTokens: 8 });
      expect(tiny.blockBytes).toBe(small);
      await store.write([patternItem(shape, other, 1, 2)]);
      for (const call of [store.readBoxes([boxItem(other, 2)]), store.writeBoxes([boxItem(other, 2)])]) {
        expect(names(await call)).toEqual(['corrupt']);
      }
      expect(names(await store.read([emptyItem(patternItem(shape, other, 1, 2))]))).toEqual(['loaded']);

      await using empty = await HbmStore.open(device.live, shape, options);
      expect(names(await empty.readBoxes([boxItem(slot, 1)]))).toEqual(['missing']);
    });

    it('of a newer generation take the slot, and make it readable by the seal that follows', async () => {
      const slot = slotOf(7);
      const fresh = boxItem(slot, 2, 0x77);
      expectLoaded(await store.writeBoxes([fresh]));
      const opened = { ...blocks.find((item) => item.slot === slot)!, generation: 2 };
      expect(names(await store.read([emptyItem(opened)]))).toEqual(['missing']);
      expect(names(await store.readBoxes([boxItem(slot, 2)]))).toEqual(['missing']);
      expect(names(await store.readBoxes([boxItem(slot, 1)]))).toEqual(['refused']);
      expectLoaded(await store.writeBoxes([fresh]));

      scatter(layout, box, block, opened.bytes, fresh.bytes);
      const [seal] = await store.seal([opened]);
      expect(seal.digest).toEqual(digestBytes(opened.bytes));
      const target = boxItem(slot, 2);
      expectLoaded(await store.readBoxes([target]));
      expect(target.bytes).toEqual(fresh.bytes);
      await expectPool(
        store,
        blocks.map((item) => (item.slot === slot ? opened : item)),
      );
    });

    it('are refused where they do not fit: bytes of another length, slots too small, places outside of the pool', async () => {
      const item = boxItem(slotOf(1), 1);
      const wrong: [BoxItem, RegExp][] = [
        [{ ...item, bytes: item.bytes.subarray(4) }, /bytes for a box of/],
        [
          { ...item, bytes: new Float32Array(plan.boxBytes / 4) as unknown as Uint8Array },
          /must be a Uint8Array/,
        ],
        [{ ...item, sizeClass: 1, slot: slotOf(1) + 1 }, /cannot hold a unit of/],
        [{ ...item, slot: shape.slotLimit }, /outside the pool/],
        [{ ...item, slot: slotOf(1) + 1 }, /does not exist/],
        [{ ...item, generation: 0 }, /generation 0/],
      ];
      for (const call of [store.readBoxes.bind(store), store.writeBoxes.bind(store)]) {
        const ends = await call(wrong.map(([one]) => one));
        expect(names(ends)).toEqual(wrong.map(() => 'refused'));
        ends.forEach((end, index) => {
          expect(end.reason).toMatch(wrong[index][1]);
        });
      }
      await expectPool(store, blocks);
    });

    it('exclude every other call on their slots, but reads beside reads', async () => {
      const slot = slotOf(3);
      const item = blocks.find((one) => one.slot === slot)!;
      const reads = [boxItem(slot, 1), boxItem(slot, 1)];
      const target = emptyItem(item);
      const beside = await Promise.all([
        store.readBoxes(reads),
        store.read([target]),
        store.writeBoxes([boxItem(slot, 1)]),
        store.seal([item]),
        store.write([item]),
      ]);
      expect(beside.map(names)).toEqual([
        ['loaded', 'loaded'],
        ['loaded'],
        ['refused'],
        ['refused'],
        ['refused'],
      ]);
      for (const end of beside.slice(2).flat()) expect(end.reason).toMatch(/is busy: a read/);
      const writing = await Promise.all([
        store.writeBoxes([boxItem(slot, 1, 0x31)]),
        store.readBoxes([boxItem(slot, 1)]),
        store.read([target]),
        store.seal([item]),
        store.writeBoxes([boxItem(slot, 1, 0x32)]),
      ]);
      expect(writing.map(names)).toEqual([['loaded'], ...new Array(4).fill(['refused'])]);
      for (const end of writing.slice(1).flat()) expect(end.reason).toMatch(/is busy: a write/);
      scatter(layout, box, block, item.bytes, boxItem(slot, 1, 0x31).bytes);
      await expectPool(store, blocks);
      const [seal] = await store.seal([item]);
      expect(seal.digest).toEqual(digestBytes(item.bytes));
    });

    it('of one slot share a call when they do not overlap', async () => {
      const slot = slotOf(5);
      const parts = [0, 2, 4, 6].map((token) => boxPlan(layout, tokenBox(layout, token, token + 2)));
      const fresh = new Uint8Array(layout.blockBytes).map((_, index) => (index * 31) & 0xff);
      const writes = parts.map((part, index) => ({
        ...boxItem(slot, 9),
        plan: part,
        bytes: new Uint8Array(gathered(layout, tokenBox(layout, 2 * index, 2 * index + 2), block, fresh)),
      }));
      expectLoaded(await store.writeBoxes(writes));
      const [seal] = await store.seal([boxItem(slot, 9)]);
      expect(seal.digest).toEqual(digestBytes(fresh));
    });

    it('of many slots, in many calls of one turn, are one submit', async () => {
      await store.readBoxes([boxItem(slotOf(0), 1)]);
      const submit = vi.spyOn(device.live.device.queue, 'submit');
      const copies = spyOnCopies();
      const reads = blocks.map((item) => boxItem(item.slot, 1));
      expectLoaded((await Promise.all(reads.map((item) => store.readBoxes([item])))).flat());
      expect(submit).toHaveBeenCalledTimes(1);
      const bytes = blocks.length * plan.boxBytes;
      expect(copies).toEqual(boxPath === 'kernel' ? [bytes] : copiesOfRuns());
      copies.length = 0;
      expectLoaded((await Promise.all(reads.map((item) => store.writeBoxes([item])))).flat());
      expect(submit).toHaveBeenCalledTimes(2);
      expect(copies).toEqual(boxPath === 'kernel' ? [bytes] : copiesOfRuns());
    });

    it('make no GPU objects', async () => {
      const items = blocks.map((item) => boxItem(item.slot, 1));
      const createBuffer = vi.spyOn(device.live.device, 'createBuffer');
      const createBindGroup = vi.spyOn(device.live.device, 'createBindGroup');
      for (let round = 0; round < 20; round++) {
        expectLoaded(await store.writeBoxes(items));
        expectLoaded(await store.readBoxes(items));
      }
      expect(createBuffer).not.toHaveBeenCalled();
      expect(createBindGroup).not.toHaveBeenCalled();
    });

    it('end before a pool is disposed of, and are refused after', async () => {
      const items = blocks.map((item) => boxItem(item.slot, 1));
      const calls = [store.readBoxes(items.slice(0, 32)), store.writeBoxes(items.slice(32))];
      await store[Symbol.asyncDispose]();
      for (const call of calls) expectLoaded(await call);
      const [late] = await store.readBoxes([items[0]]);
      expect(late.reason).toMatch(/disposed/);
    });

    it('whose memory is taken away meanwhile are refused, and no other', async () => {
      const { queue } = device.live.device;
      for (const moment of ['before their turn', 'under way'] as const) {
        const items = blocks.map((item) => boxItem(item.slot, 1));
        const takeAway = (): ArrayBuffer => (items[4].bytes.buffer as ArrayBuffer).transfer();
        const submit = queue.submit.bind(queue);
        vi.spyOn(queue, 'submit').mockImplementation((buffers) => {
          submit(buffers);
          if (moment === 'under way') takeAway();
        });
        const reading = store.readBoxes(items);
        if (moment === 'before their turn') takeAway();
        const ends = names(await reading);
        expect(ends).toEqual(items.map((_, index) => (index === 4 ? 'refused' : 'loaded')));
        vi.restoreAllMocks();
      }
    });
  });
}

function copiesOfRuns(): number[] {
  return new Array(64 * plan.runs).fill(plan.runBytes);
}

function spyOnCopies(): number[] {
  const copies: number[] = [];
  const createCommandEncoder = device.live.device.createCommandEncoder.bind(device.live.device);
  vi.spyOn(device.live.device, 'createCommandEncoder').mockImplementation((descriptor) => {
    const encoder = createCommandEncoder(descriptor);
    const copy = encoder.copyBufferToBuffer.bind(encoder);
    encoder.copyBufferToBuffer = ((...args: Parameters<typeof copy>) => {
      copies.push(args[4]!);
      return copy(...args);
    }) as typeof encoder.copyBufferToBuffer;
    return encoder;
  });
  return copies;
}

describe('the path of boxes', () => {
  it('is chosen by the length and the number of their runs', async () => {
    // runs of a head are as long as the device copies them: 8 KiB on a software device
    const { copiedRunBytes } = device.live.adapter.software ? softwareRule : hardwareRule;
    const blockTokens = Math.max(16, copiedRunBytes / 512);
    const wide = kvLayout({ layers: 8, kvHeads: 2, headDim: 64, dtype: 'f32', blockTokens });
    const wideShape = poolShape(4, wide.blockBytes, [wide.blockBytes]);
    await using store = await HbmStore.open(device.live, wideShape);
    const blocks = await fillPool(store, wideShape);
    const whole = blockBox(wide, 0);
    const dispatches = async (boxes: readonly StoreItem[], part: typeof whole): Promise<number> => {
      const onePlan = boxPlan(wide, part);
      const items = boxes.map((one) => ({ ...one, plan: onePlan, bytes: new Uint8Array(onePlan.boxBytes) }));
      const writes = vi.spyOn(device.live.device.queue, 'writeBuffer');
      expectLoaded(await store.readBoxes(items));
      const count = writes.mock.calls.length; // the table of items, once a kernel pass
      writes.mockRestore();
      return count;
    };
    const token = { ...whole, tokenEnd: 1 };
    expect(await dispatches(blocks, token)).toBe(1);
    expect(await dispatches(blocks, { ...whole, headEnd: 1 })).toBe(0); // 8 long runs a block
    expect(await dispatches(blocks, { ...whole, layerEnd: 1 })).toBe(0); // one run a block
    expect(await dispatches(blocks.slice(0, 1), { ...token, layerEnd: 4 })).toBe(0); // 16 runs in all
  });
});
