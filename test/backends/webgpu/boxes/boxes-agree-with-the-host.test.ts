import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  type BoxKernelShape,
  BoxTables,
  hardwareBoxShape,
  openBoxKernels,
  packedBuffer,
  runOffsetBytes,
  softwareBoxShape,
} from '../../../../src/backends/webgpu/boxes.ts';
import { HbmStore } from '../../../../src/backends/webgpu/hbmStore.ts';
import { Slabs } from '../../../../src/backends/webgpu/slabs.ts';
import { type BoxItem, type BoxPath, boxPlan, inUnitsOf } from '../../../../src/backends/webgpu/types.ts';
import { ReadbackBuffers } from '../../../../src/backends/webgpu/uploads.ts';
import {
  blockBox,
  Granularity,
  type KVBox,
  type UnitConfig,
  unitBox,
  unitSpec,
} from '../../../../src/runtime/geometry/box.ts';
import { type KVLayout, kvLayout } from '../../../../src/runtime/geometry/layout.ts';
import { fillPattern } from '../../../../src/runtime/pattern.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import type { StoreItem } from '../../../../src/runtime/tier/tierStore.ts';
import { SeededRandom, testSeed } from '../../../../src/testing/index.ts';
import { boxesIn, layouts } from '../../../runtime/geometry/arbitraries.ts';
import { sized } from '../../../sized.ts';
import { testDevice } from '../testDevice.ts';
import { expectLoaded, expectPool, fillPool, gathered, runsOf, scatter } from './boxTruth.ts';

const device = testDevice();

afterEach(() => vi.restoreAllMocks());

/** Items that read the box of each block. */
function readItems(layout: KVLayout, box: KVBox, blocks: readonly StoreItem[], container?: KVBox): BoxItem[] {
  const plan = boxPlan(layout, box, container);
  return blocks.map((block) => ({ ...block, plan, bytes: new Uint8Array(plan.boxBytes).fill(0xee) }));
}

/**
 * Items that write bytes, different everywhere, to the box of each block; `blocks` become what must lie there
 * then.
 */
function writeItems(
  layout: KVLayout,
  box: KVBox,
  blocks: readonly StoreItem[],
  container: KVBox = blockBox(layout, 0),
): BoxItem[] {
  const plan = boxPlan(layout, box, container);
  return blocks.map((block) => {
    const bytes = new Uint8Array(plan.boxBytes);
    fillPattern(new Uint32Array(bytes.buffer), block.slot, 0xb0c5);
    scatter(layout, box, container, block.bytes, bytes);
    return { ...block, plan, bytes };
  });
}

async function expectBoxes(
  store: HbmStore,
  layout: KVLayout,
  box: KVBox,
  blocks: readonly StoreItem[],
  container: KVBox = blockBox(layout, 0),
): Promise<void> {
  const items = readItems(layout, box, blocks, container);
  expectLoaded(await store.readBoxes(items));
  const wrong = items.filter((item, index) => {
    const wanted = gathered(layout, box, container, blocks[index].bytes);
    return Buffer.compare(item.bytes, wanted) !== 0;
  });
  expect(wrong.map((item) => item.slot)).toEqual([]);
}

const granularities: Record<string, UnitConfig> = {
  BLOCK: { granularity: Granularity.BLOCK },
  TOKEN: { granularity: Granularity.TOKEN },
  HEAD: { granularity: Granularity.HEAD, headsPerUnit: 2, layersPerUnit: 2 },
  LAYER: { granularity: Granularity.LAYER },
};
const paths: (BoxPath | undefined)[] = ['kernel', 'copies', undefined];
/** Rows of 24 bytes are no whole vectors, rows of 32 are. */
const headDims = { 'whole vectors': 16, words: 12 };

describe('boxes of blocks', () => {
  for (const [granularity, config] of Object.entries(granularities)) {
    for (const [unit, headDim] of Object.entries(headDims)) {
      it(`of ${granularity}s, rows of ${unit}, are gathered and scattered as the host does it`, async () => {
        const layout = kvLayout({ layers: 3, kvHeads: 3, headDim, dtype: 'f16', blockTokens: 5 });
        const shape = poolShape(4, 6 * layout.blockBytes, [layout.blockBytes]);
        const spec = unitSpec(layout, config);
        for (const boxPath of paths) {
          await using store = await HbmStore.open(device.live, shape, {
            slabBytesMax: 2 * shape.pageBytes,
            ...(boxPath === undefined ? {} : { boxPath }),
          });
          const blocks = await fillPool(store, shape);
          for (let number = 0; number < spec.unitsPerTokenRange; number++) {
            const box = unitBox(layout, spec, number);
            await expectBoxes(store, layout, box, blocks);
            expectLoaded(await store.writeBoxes(writeItems(layout, box, blocks)));
            await expectPool(store, blocks);
          }
        }
      });
    }
  }

  it('of any layout lie right in slots at any word, through rings of any size, beside unchanged neighbours', async () => {
    const cases = layouts.chain((layout) =>
      fc.record({
        layout: fc.constant(layout),
        box: boxesIn(blockBox(layout, 0)),
        other: boxesIn(blockBox(layout, 0)),
        gapWords: fc.integer({ min: 0, max: 3 }),
        pageWords: fc.integer({ min: 0, max: 7 }),
        every: fc.integer({ min: 1, max: 3 }),
        stagingBytes: fc.integer({ min: 8, max: 400 }),
        boxPath: fc.constantFrom(...paths),
      }),
    );
    await fc.assert(
      fc.asyncProperty(cases, async (one) => {
        const { layout, box, other, gapWords, pageWords, every, stagingBytes, boxPath } = one;
        const slotBytes = layout.blockBytes + 4 * gapWords;
        const shape = poolShape(3, 4 * slotBytes + 4 * pageWords, [slotBytes]);
        await using store = await HbmStore.open(device.live, shape, {
          slabBytesMax: 2 * shape.pageBytes,
          stagingBytes,
          stagingBuffers: 2,
          verifyWrites: 'kernel',
          ...(boxPath === undefined ? {} : { boxPath }),
        });
        const slots = await fillPool(store, shape);
        const some = slots.filter((_, index) => index % every === 0);
        await expectBoxes(store, layout, box, some);
        const writes = writeItems(layout, box, some);
        const later = writeItems(layout, other, some);
        expectLoaded(await store.writeBoxes(writes));
        expectLoaded(await store.writeBoxes(later));
        await expectPool(store, slots);
      }),
      { numRuns: sized(30, 60) },
    );
  });

  it('may lie in units of other granularities', async () => {
    const layout = kvLayout({ layers: 4, kvHeads: 4, headDim: 8, dtype: 'f16', blockTokens: 8 });
    const spec = unitSpec(layout, { granularity: Granularity.HEAD, headsPerUnit: 2, tokensPerUnit: 24 });
    const container = unitBox(layout, spec, 3);
    const box = { ...container, headStart: container.headStart + 1, tokenStart: container.tokenStart + 7 };
    const shape = poolShape(2, 3 * spec.unitBytes, [spec.unitBytes]);
    await using store = await HbmStore.open(device.live, shape);
    const units = await fillPool(store, shape);
    await expectBoxes(store, layout, box, units, container);
    expectLoaded(await store.writeBoxes(writeItems(layout, box, units, container)));
    await expectPool(store, units);
  });

  it('are refused a plan when they reach out of what contains them', () => {
    const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 8, dtype: 'f16', blockTokens: 8 });
    const box = { ...blockBox(layout, 0), tokenEnd: 9 };
    expect(() => boxPlan(layout, box)).toThrowError(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'box' }),
    );
    expect(() => boxPlan(layout, { ...box, tokenEnd: 8, headEnd: 3 })).toThrowError(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'headEnd' }),
    );
  });

  it('stream through rings many times smaller than they are, a run in several buffers where it must', async () => {
    const layout = kvLayout({ layers: 6, kvHeads: 4, headDim: 64, dtype: 'f16', blockTokens: 16 });
    const shape = poolShape(sized(4, 8), 8 * layout.blockBytes, [layout.blockBytes]);
    const block = blockBox(layout, 0);
    await using store = await HbmStore.open(device.live, shape, { stagingBytes: 5000, stagingBuffers: 2 });
    const blocks = await fillPool(store, shape);
    const submit = vi.spyOn(device.live.device.queue, 'submit');
    for (const box of [
      { ...block, tokenStart: 3, tokenEnd: 5 },
      { ...block, headStart: 1, headEnd: 2 },
      { ...block, layerStart: 2, layerEnd: 3 },
    ]) {
      submit.mockClear();
      await expectBoxes(store, layout, box, blocks);
      expect(submit.mock.calls.length).toBeGreaterThan(64);
      expectLoaded(await store.writeBoxes(writeItems(layout, box, blocks)));
      await expectPool(store, blocks);
    }
  });

  it('of several layouts, long and short runs, share a call and a staging buffer', async () => {
    const words = kvLayout({ layers: 3, kvHeads: 3, headDim: 6, dtype: 'f16', blockTokens: 3 });
    const vectors = kvLayout({ layers: 2, kvHeads: 2, headDim: 8, dtype: 'f16', blockTokens: 10 });
    const slotBytes = 16 * Math.ceil(Math.max(words.blockBytes, vectors.blockBytes) / 16);
    const shape = poolShape(2, 60 * slotBytes, [slotBytes]);
    await using store = await HbmStore.open(device.live, shape);
    const slots = await fillPool(store, shape);
    const layer = { ...blockBox(words, 0), layerStart: 1, layerEnd: 2 }; // one run, no whole vectors
    const token = { ...blockBox(vectors, 0), tokenStart: 2, tokenEnd: 5 };
    const writes = slots.flatMap((slot, index) =>
      index % 2 === 0 ? writeItems(words, layer, [slot]) : writeItems(vectors, token, [slot]),
    );
    expectLoaded(await store.writeBoxes(writes));
    await expectPool(store, slots);
    const reads = writes.map((item) => ({ ...item, bytes: new Uint8Array(item.bytes.byteLength) }));
    expectLoaded(await store.readBoxes(reads));
    expect(reads.map((item) => item.bytes)).toEqual(writes.map((item) => item.bytes));
  });

  it('may be more than a batch has room for', async () => {
    const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 2, dtype: 'f16', blockTokens: 3 });
    const shape = poolShape(2, 2500 * layout.blockBytes, [layout.blockBytes]);
    await using store = await HbmStore.open(device.live, shape);
    const blocks = await fillPool(store, shape);
    const box = { ...blockBox(layout, 0), tokenStart: 1, tokenEnd: 2 };
    expectLoaded(await store.writeBoxes(writeItems(layout, box, blocks)));
    await expectPool(store, blocks);
    await expectBoxes(store, layout, box, blocks);
  });
});

describe('the plan of a box', () => {
  const cases = layouts.chain((layout) =>
    fc.record({
      layout: fc.constant(layout),
      box: boxesIn(blockBox(layout, 0)),
      slotOffset: fc.integer({ min: 0, max: 9 }).map((words) => 4 * words),
    }),
  );

  it('has the runs that the geometry has, and knows whether all of them are whole vectors', () => {
    const seen = new Set<boolean>();
    fc.assert(
      fc.property(cases, ({ layout, box, slotOffset }) => {
        const plan = boxPlan(layout, box);
        const runs = Array.from({ length: plan.runs }, (_, run) => [
          runOffsetBytes(plan, run),
          plan.runBytes,
        ]);
        const wanted = runsOf(layout, box, blockBox(layout, 0)).map(([offset, , bytes]) => [offset, bytes]);
        expect(runs).toEqual(wanted);
        const whole = wanted.every(([at, bytes]) => (slotOffset + at) % 16 === 0 && bytes % 16 === 0);
        expect(inUnitsOf(plan, 16, slotOffset)).toBe(whole);
        seen.add(whole);
      }),
      {
        numRuns: 2000,
        examples: [
          [strided({ kvHeads: 1, blockTokens: 5 }, { tokenEnd: 4 })], // runs of 16 bytes, 20 apart
          [strided({ kvHeads: 3, blockTokens: 1 }, { headEnd: 2 })], // runs of 16 bytes, layers 24 apart
        ],
      },
    );
    expect(seen.size).toBe(2);
  });
});

function strided(
  shape: { kvHeads: number; blockTokens: number },
  part: Partial<KVBox>,
): { layout: KVLayout; box: KVBox; slotOffset: number } {
  const layout = kvLayout({ layers: 2, headDim: 1, dtype: 'f32', ...shape });
  return { layout, box: { ...blockBox(layout, 0), ...part }, slotOffset: 0 };
}

describe('box kernels', () => {
  const shapes: Record<string, BoxKernelShape> = {
    'the shape for software devices': softwareBoxShape,
    'the shape for GPUs': hardwareBoxShape,
    'one invocation a workgroup': { workgroupSize: 1, sharersMax: 1, unitsPerInvocation: 1 },
    'wide workgroups of narrow teams': { workgroupSize: 256, sharersMax: 4, unitsPerInvocation: 3 },
  };
  for (const [name, kernelShape] of Object.entries(shapes)) {
    it(`move every run with ${name}`, async () => {
      const layout = kvLayout({ layers: 5, kvHeads: 3, headDim: 8, dtype: 'f16', blockTokens: 7 });
      const shape = poolShape(2, 80_000, [80_000]);
      const slabs = await Slabs.open(device.live, shape, 'test', 80_000);
      const kernels = await openBoxKernels(device.live, slabs.buffers, 'test', kernelShape);
      const packedBytes = 32 * layout.blockBytes;
      const packed = packedBuffer(device.live, 'test', packedBytes);
      const gather = new BoxTables(kernels.gather, packed, 32);
      const scatter = new BoxTables(kernels.scatter, packed, 32);
      const size = { bytes: Math.max(80_000, packedBytes), count: 1 };
      const buffers = new ReadbackBuffers(device.live, size, 'test');
      const content = slabs.buffers.map((buffer, slab) => {
        const words = new Uint32Array(20_000);
        fillPattern(words, slab, 3);
        const bytes = new Uint8Array(words.buffer);
        device.live.device.queue.writeBuffer(buffer, 0, bytes);
        return bytes;
      });

      const random = new SeededRandom(testSeed(99));
      const boxes: { at: number; from: Uint8Array[] }[] = [];
      const block = blockBox(layout, 0);
      for (let at = 0, index = 0; index < 32; index++) {
        const tokenStart = random.below(7);
        const tokenEnd = tokenStart + 1 + random.below(7 - tokenStart);
        const plan = boxPlan(layout, { ...block, headStart: random.below(3), tokenStart, tokenEnd });
        const slot = { slab: index & 1, offsetBytes: (index >> 1) * (layout.blockBytes + 4) };
        const firstRun = random.below(plan.runs);
        const runs = 1 + random.below(plan.runs - firstRun);
        for (const tables of [gather, scatter]) tables.add(plan, slot, at, firstRun, runs);
        const from = Array.from({ length: runs }, (_, run) => {
          const offset = slot.offsetBytes + runOffsetBytes(plan, firstRun + run);
          return content[slot.slab].subarray(offset, offset + plan.runBytes);
        });
        boxes.push({ at, from });
        at += Math.ceil((runs * plan.runBytes) / 16) * 16;
      }
      const landed = async (buffer: GPUBuffer, bytes: number, tables?: BoxTables): Promise<Buffer> => {
        const mapped = (await buffers.acquire())!;
        const encoder = device.live.device.createCommandEncoder();
        tables?.encode(encoder);
        encoder.copyBufferToBuffer(buffer, 0, mapped, 0, bytes);
        device.live.device.queue.submit([encoder.finish()]);
        let found = Buffer.alloc(0);
        await buffers.land(mapped, bytes, (range) => {
          found = Buffer.from(range.slice(0));
        });
        return found;
      };

      const gathered = await landed(packed, packedBytes, gather);
      for (const { at, from } of boxes) {
        const wanted = Buffer.concat(from);
        expect(Buffer.compare(gathered.subarray(at, at + wanted.byteLength), wanted)).toBe(0);
      }

      const changed = gathered.map((byte) => byte ^ 0x5a);
      device.live.device.queue.writeBuffer(packed, 0, new Uint8Array(changed));
      for (const { from } of boxes) for (const run of from) run.set(run.map((byte) => byte ^ 0x5a));
      const slabBytes = await landed(slabs.buffers[0], 80_000, scatter);
      expect(Buffer.compare(slabBytes, content[0])).toBe(0);
      expect(Buffer.compare(await landed(slabs.buffers[1], 80_000), content[1])).toBe(0);
      await buffers.destroy();
      gather.destroy();
      scatter.destroy();
      packed.destroy();
      slabs.destroy();
    });
  }
});
