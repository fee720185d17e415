import { expect, it } from 'vitest';
import { BufferUsage, MapMode } from '../../../../src/backends/webgpu/device.ts';
import { HbmStore } from '../../../../src/backends/webgpu/hbmStore.ts';
import { type KernelSpec, SlabKernel } from '../../../../src/backends/webgpu/kernels.ts';
import { fillPattern } from '../../../../src/runtime/pattern.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { SeededRandom, testSeed } from '../../../../src/testing/index.ts';
import { testDevice } from '../testDevice.ts';

const device = testDevice();

/**
 * Adds the words of a slot, each times a factor from a buffer of the kernel's own; three words an item, one
 * result.
 */
const weightedSum: KernelSpec = {
  name: 'weightedSum',
  code: `
    struct Item { wordOffset: u32, wordCount: u32, factor: u32 }
    @group(0) @binding(0) var<storage, read> slab: array<u32>;
    @group(0) @binding(1) var<storage, read> items: array<Item>;
    @group(0) @binding(2) var<storage, read_write> results: array<atomic<u32>>;
    @group(1) @binding(0) var<storage, read> factors: array<u32>;
    @group(1) @binding(1) var<storage, read_write> visits: array<atomic<u32>>;
    override step: u32 = 1u;
    @compute @workgroup_size(1)
    fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
      let item = items[group.y];
      for (var at = group.x; at < item.wordCount; at += groups.x) {
        atomicAdd(&results[group.y], step * slab[item.wordOffset + at] * factors[item.factor]);
        atomicAdd(&visits[item.factor], 1u);
      }
    }`,
  entryPoint: 'main',
  constants: { step: 3 },
  slab: 'read',
  itemWords: 3,
  resultWords: 1,
  own: ['read', 'write'],
};

const seed = testSeed(2026);
it(`an item finds its slot in whichever slab, its words, its own buffers and its result (seed ${seed})`, async () => {
  const random = new SeededRandom(seed);
  const shape = poolShape(10, 8192, [1024]);
  await using store = await HbmStore.open(device.live, shape, { slabBytesMax: 3 * 8192 });
  expect(store.slabs).toHaveLength(4);
  const slots = Array.from({ length: shape.slotLimit }, (_, slot) => slot);
  await store.fillPattern(
    slots.map((slot) => ({ slot, sizeClass: 0, generation: 1, seedLo: slot, seedHi: 8 })),
  );

  const { device: gpu } = device.live;
  const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = BufferUsage;
  const factors = gpu.createBuffer({ size: 16, usage: STORAGE | COPY_DST });
  const visits = gpu.createBuffer({ size: 16, usage: STORAGE | COPY_SRC });
  gpu.queue.writeBuffer(factors, 0, Uint32Array.of(1, 5, 7, 0x10001));
  const kernel = await SlabKernel.open(device.live, store.slabs, weightedSum);
  const own = kernel.bindOwn([factors, visits]);
  const landing = gpu.createBuffer({
    size: 2 * kernel.resultBytesMax(60) + 16,
    usage: MAP_READ | COPY_DST,
  });
  const resultsTo = [0, 1].map(() =>
    gpu.createBuffer({ size: kernel.resultBytesMax(60), usage: COPY_DST | COPY_SRC }),
  );

  // two tables in one encoder, and the first of them again in the next
  const tables = [kernel.table(60), kernel.table(60)];
  for (let round = 0; round < 2; round++) {
    const encoder = gpu.createCommandEncoder();
    const wanted: { table: number; position: number; sum: number }[] = [];
    tables.forEach((table, number) => {
      const chosen = random.distinctBelow(slots.length, round === 0 ? 60 : 1 + random.below(20));
      const sums = chosen.map((slot) => {
        const { slab, offsetBytes } = store.locate(slot, 0);
        const [factor, words] = [random.below(4), 1 + random.below(256)];
        table.add(slab, 1 + random.below(40), offsetBytes / 4, words, factor);
        const content = new Uint32Array(words);
        fillPattern(content, slot, 8);
        const times = 3 * [1, 5, 7, 0x10001][factor];
        return content.reduce((sum, word) => (sum + Math.imul(word, times)) >>> 0, 0);
      });
      expect(table.full).toBe(round === 0);
      const positions = table.encode(encoder, { own, resultsTo: resultsTo[number] });
      expect(table.length).toBe(0);
      sums.forEach((sum, index) => {
        wanted.push({ table: number, position: positions[index], sum });
      });
    });
    const bytes = kernel.resultBytesMax(60);
    resultsTo.forEach((buffer, number) => {
      encoder.copyBufferToBuffer(buffer, 0, landing, number * bytes, bytes);
    });
    encoder.copyBufferToBuffer(visits, 0, landing, 2 * bytes, 16);
    gpu.queue.submit([encoder.finish()]);
    await landing.mapAsync(MapMode.READ);
    const found = new Uint32Array(landing.getMappedRange().slice(0));
    landing.unmap();
    for (const { table, position, sum } of wanted) {
      expect(found[(table * bytes) / 4 + position]).toBe(sum);
    }
    expect(found.slice(-4).some((count) => count > 0)).toBe(true);
  }
  for (const table of tables) table.destroy();
  for (const buffer of [factors, visits, landing, ...resultsTo]) buffer.destroy();
});

it('a kernel that does not compile is named, with a remedy', async () => {
  const shape = poolShape(1, 1024, [1024]);
  await using store = await HbmStore.open(device.live, shape);
  const broken = { ...weightedSum, entryPoint: 'nowhere' };
  await expect(SlabKernel.open(device.live, store.slabs, broken)).rejects.toMatchObject({
    code: 'TKV_DEVICE',
    message: expect.stringMatching(/kernel weightedSum does not compile .*TIERKV_ADAPTER/),
  });
});
