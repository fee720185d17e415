import { describe, expect, it } from 'vitest';
import { HbmStore } from '../../../../src/backends/webgpu/hbmStore.ts';
import {
  hardwareShape,
  type SlotKernel,
  type SlotKernelShape,
  SlotKernels,
  softwareShape,
} from '../../../../src/backends/webgpu/kernels.ts';
import { type KernelItem, KernelRuns } from '../../../../src/backends/webgpu/poolWork.ts';
import { Slabs } from '../../../../src/backends/webgpu/slabs.ts';
import type { PatternItem } from '../../../../src/backends/webgpu/types.ts';
import { ReadbackBuffers } from '../../../../src/backends/webgpu/uploads.ts';
import { digestBytes, digestWords } from '../../../../src/runtime/digest.ts';
import { fillPattern, patternWord } from '../../../../src/runtime/pattern.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../../src/runtime/tier/tier.ts';
import type { StoreItem } from '../../../../src/runtime/tier/tierStore.ts';
import { patternItem, SeededRandom, testSeed } from '../../../../src/testing/index.ts';
import { testDevice } from '../testDevice.ts';

const device = testDevice();

/** Slot sizes of which each puts its slots at other offsets modulo a vector of 16 bytes. */
const oddSizes = [4, 8, 12, 16, 20, 60, 252, 1004, 4092, 4100, 65_540, 300_004];

const pattern = (slot: number, sizeClass: number, generation: number): PatternItem => ({
  slot,
  sizeClass,
  generation,
  seedLo: Math.imul(slot + 1, 0x9e3779b1) >>> 0,
  seedHi: generation,
});

function hostWords(item: PatternItem, bytes: number): Uint32Array {
  const words = new Uint32Array(bytes / 4);
  fillPattern(words, item.seedLo, item.seedHi);
  return words;
}

describe('digest and pattern kernels', () => {
  it('fill a slot once in a batch, since the items of a batch run at the same time', async () => {
    const shape = poolShape(1, 400_000, [4096, 8192]);
    const slabs = await Slabs.open(device.live, shape, 'test');
    const kernels = await SlotKernels.open(device.live, slabs.buffers, 'test');
    const results = new ReadbackBuffers(device.live, { bytes: kernels.resultBytesMax, count: 1 }, 'test');
    const item = (offsetBytes: number, bytes: number): KernelItem => ({
      location: { slab: 0, offsetBytes },
      bytes,
      seedLo: 1,
      seedHi: 2,
      end: () => {},
      refuse: () => {},
    });
    const added = async (name: SlotKernel): Promise<boolean[]> => {
      const runs = new KernelRuns(device.live, kernels, name, results);
      const batch = (await runs.open())!;
      const items = [item(0, 4096), item(4096, 4096), item(0, 4096), item(0, 8192)];
      const taken = items.map((each) => batch.add(each));
      const encoder = device.live.device.createCommandEncoder();
      batch.encode(encoder);
      device.live.device.queue.submit([encoder.finish()]);
      await batch.finish(Promise.resolve(''));
      runs.table.destroy();
      return taken;
    };
    expect(await added('fill')).toEqual([true, true, false, false]);
    expect(await added('digest')).toEqual([true, true, true, true]);
    await results.destroy();
    slabs.destroy();
  });

  it('leave in a slot what the last of several fills in flight wrote', async () => {
    const slots = 16;
    await using store = await HbmStore.open(device.live, poolShape(1, slots * 65_536, [65_536]));
    const fillsOf = (generation: number): PatternItem[] =>
      Array.from({ length: slots }, (_, slot) => pattern(slot, 0, generation));
    const rounds = [1, 2, 3, 4, 5].map((generation) => store.fillPattern(fillsOf(generation)));
    const ends = (await Promise.all(rounds)).flat();
    expect(ends.every((end) => end.outcome === Outcome.LOADED)).toBe(true);
    const checks = await store.countMismatches(fillsOf(5));
    expect(checks.map((check) => check.mismatchedWords)).toEqual(checks.map(() => 0));
  });

  const ways = ['kernel', 'readback'] as const;
  for (const [bytes, verifyWrites] of oddSizes.flatMap((one) => ways.map((way) => [one, way] as const))) {
    it(`give the host's digest and the host's pattern for slots of ${bytes} bytes at any word offset, sealed by ${verifyWrites}`, async () => {
      const slots = Math.max(3, Math.min(70, Math.floor(200_000 / bytes)));
      const shape = poolShape(2, slots * bytes + 4, [bytes]);
      await using store = await HbmStore.open(device.live, shape, { verifyWrites });
      const items = Array.from({ length: 2 * slots }, (_, slot) => pattern(slot, 0, 1));

      const fills = await store.fillPattern(items);
      expect(fills.every((end) => end.outcome === Outcome.LOADED)).toBe(true);
      const seals = await store.seal(items);
      const landed = items.map((item) => ({
        ...item,
        key: new Uint32Array(4),
        digest: { lo: 0, hi: 0 },
        bytes: new Uint8Array(bytes),
      }));
      await store.read(landed);
      items.forEach((item, index) => {
        const words = hostWords(item, bytes);
        expect(seals[index].digest).toEqual(digestWords(words));
        expect(Buffer.compare(landed[index].bytes, new Uint8Array(words.buffer))).toBe(0);
      });
      const checks = await store.countMismatches(items);
      expect(checks.map((end) => end.mismatchedWords)).toEqual(items.map(() => 0));
    });
  }

  it('count exactly the words that differ, and none of the neighbouring slots', async () => {
    const shape = poolShape(1, 10 * 1004, [1004]);
    await using store = await HbmStore.open(device.live, shape, { verifyWrites: 'kernel' });
    const slots = Array.from({ length: 10 }, (_, slot) => pattern(slot, 0, 3));
    await store.fillPattern(slots);
    const wrongWords = [0, 1, 249, 250];
    const words = hostWords(slots[4], 1004);
    for (const index of wrongWords) words[index] ^= 1 << (index % 32);
    const bytes = new Uint8Array(words.buffer);
    await store.write([{ ...slots[4], key: new Uint32Array(4), digest: digestBytes(bytes), bytes }]);
    const counts = (await store.countMismatches(slots)).map((end) => end.mismatchedWords);
    expect(counts).toEqual([0, 0, 0, 0, wrongWords.length, 0, 0, 0, 0, 0]);
    const foreign = await store.countMismatches([{ ...slots[2], seedHi: 4 }]);
    const expected = hostWords(slots[2], 1004).filter(
      (word, index) => word !== patternWord(slots[2].seedLo, 4, index),
    ).length;
    expect(foreign[0].mismatchedWords).toBe(expected);
  });

  it('cover mixed size classes over many slabs in one call', async () => {
    const shape = poolShape(40, 16_384, [16_384, 4096, 1000, 12]);
    await using store = await HbmStore.open(device.live, shape, { slabBytesMax: 3 * 16_384 });
    expect(store.describe().slabs).toBe(14);
    const items: PatternItem[] = [];
    for (let page = 39; page >= 0; page--) {
      const sizeClass = page % 4;
      const step = sizeClass === 3 ? 97 : 1;
      for (let index = 0; index < shape.slotsPerPage[sizeClass]; index += step) {
        items.push(pattern(page * shape.slotsPerPageMax + index, sizeClass, 1));
      }
    }
    await store.fillPattern(items);
    const seals = await store.seal(items);
    items.forEach((item, index) => {
      expect(seals[index].digest).toEqual(digestWords(hostWords(item, shape.slotBytes[item.sizeClass])));
    });
  });

  it('take more slots than one batch holds', async () => {
    const shape = poolShape(4, 12 * 3000, [12]);
    await using store = await HbmStore.open(device.live, shape, { slabBytesMax: 12 * 3000 });
    const items = Array.from({ length: 12_000 }, (_, slot) => pattern(slot, 0, 1));
    await store.fillPattern(items);
    const seals = await store.seal(items);
    const checks = await store.countMismatches(items);
    expect(checks.every((end) => end.mismatchedWords === 0)).toBe(true);
    items.forEach((item, index) => {
      expect(seals[index].digest).toEqual(digestWords(hostWords(item, 12)));
    });
  });

  const shapes: Record<string, SlotKernelShape> = {
    'the shape for software devices': softwareShape,
    'the shape for GPUs': hardwareShape,
    'wide workgroups with a tree of sums': { workgroupSize: 256, vectorsPerInvocation: 1, digest: 'reduced' },
    'one invocation a workgroup': { workgroupSize: 1, vectorsPerInvocation: 3, digest: 'reduced' },
  };
  for (const [name, kernelShape] of Object.entries(shapes)) {
    it(`sum up to the same digest with ${name}`, async () => {
      const shape = poolShape(1, 400_000, [99_996, 5000]);
      const slabs = await Slabs.open(device.live, shape, 'test');
      const kernels = await SlotKernels.open(device.live, slabs.buffers, 'test', kernelShape);
      const table = kernels.table('digest', 64);
      const results = new ReadbackBuffers(device.live, { bytes: kernels.resultBytesMax, count: 1 }, 'test');
      const content = new Uint32Array(100_000);
      fillPattern(content, 77, 5);
      device.live.device.queue.writeBuffer(slabs.buffers[0], 0, new Uint8Array(content.buffer));

      const random = new SeededRandom(testSeed(4711));
      const ranges = Array.from({ length: 50 }, () => {
        const words = 1 + random.below(20_000);
        return { from: random.below(100_000 - words), words };
      });
      for (const { from, words } of ranges) {
        kernels.addSlot(table, { slab: 0, offsetBytes: 4 * from }, 4 * words);
      }
      const buffer = (await results.acquire())!;
      const encoder = device.live.device.createCommandEncoder();
      const positions = table.encode(encoder, { resultsTo: buffer });
      device.live.device.queue.submit([encoder.finish()]);
      let sums = new Uint32Array(0);
      const landed = await results.land(buffer, kernels.resultBytesMax, (range) => {
        sums = new Uint32Array(range.slice(0));
      });
      expect(landed).toBe(true);
      ranges.forEach(({ from, words }, index) => {
        const found = { lo: sums[positions[index]], hi: sums[positions[index] + 1] };
        expect(found).toEqual(digestWords(content.subarray(from, from + words)));
      });
      await results.destroy();
      table.destroy();
      slabs.destroy();
    });
  }
});

describe('seal', () => {
  it('gives the digest of what kernels and copies of the embedder have put into the slot', async () => {
    const shape = poolShape(3, 8192, [4096]);
    await using store = await HbmStore.open(device.live, shape, { verifyWrites: 'kernel' });
    const words = new Uint32Array(1024);
    fillPattern(words, 1, 2);
    const { buffer, offsetBytes, sizeBytes } = store.buffer(3, 0);
    expect(sizeBytes).toBe(4096);
    device.live.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(words.buffer));
    const [seal] = await store.seal([{ slot: 3, sizeClass: 0, generation: 9 }]);
    expect(seal).toEqual({ outcome: Outcome.LOADED, reason: '', digest: digestWords(words) });
    const target: StoreItem = {
      ...patternItem(shape, 3, 0, 9),
      bytes: new Uint8Array(4096),
    };
    expect((await store.read([target]))[0].outcome).toBe(Outcome.LOADED);
    expect(Buffer.compare(target.bytes, new Uint8Array(words.buffer))).toBe(0);
  });

  it('refuses a generation that the slot has left behind, and keeps the newer one', async () => {
    const shape = poolShape(1, 4096, [4096]);
    await using store = await HbmStore.open(device.live, shape, { verifyWrites: 'kernel' });
    await store.write([patternItem(shape, 0, 0, 5)]);
    const [stale] = await store.seal([{ slot: 0, sizeClass: 0, generation: 4 }]);
    expect(stale.outcome).toBe(Outcome.REFUSED);
    expect(stale.reason).toMatch(/stale/);
    const [again] = await store.read([patternItem(shape, 0, 0, 5)]);
    expect(again.outcome).toBe(Outcome.LOADED);
  });

  it('may follow what fills, clears or copies the slot without waiting, and sees it', async () => {
    for (const verifyWrites of ['kernel', 'readback'] as const) {
      const shape = poolShape(3, 4096, [4096]);
      await using store = await HbmStore.open(device.live, shape, { verifyWrites });
      const source = patternItem(shape, 2, 0, 1);
      await store.write([source]);
      const [filled, cleared] = [pattern(0, 0, 5), pattern(1, 0, 6)];
      const copy = { sizeClass: 0, fromSlot: 2, fromGeneration: 1, toSlot: 0, toGeneration: 7 };
      const work = [store.fillPattern([filled, cleared]), store.clear([cleared])];
      const seals = [store.seal([filled]), store.seal([cleared])];
      const copied = store.copy([copy]);
      const sealOfCopy = store.seal([{ slot: 0, sizeClass: 0, generation: 7 }]);
      const digests = (await Promise.all([...seals, sealOfCopy])).map(([end]) => end.digest);
      expect(digests).toEqual([
        digestWords(hostWords(filled, 4096)),
        digestWords(new Uint32Array(1024)),
        source.digest,
      ]);
      for (const ends of await Promise.all([...work, copied])) {
        expect(new Set(ends.map((end) => end.outcome))).toEqual(new Set([Outcome.LOADED]));
      }
    }
  });
});

describe('clear', () => {
  it('fills whole slots with zeros, no byte beside them, and gives them the generation named', async () => {
    const shape = poolShape(4, 40_000, [10_004, 1000]);
    await using store = await HbmStore.open(device.live, shape, { slabBytesMax: 80_000 });
    const slotsOf = (page: number, count: number): number[] =>
      Array.from({ length: count }, (_, index) => page * shape.slotsPerPageMax + index);
    const items = [
      ...slotsOf(0, 3).map((slot) => patternItem(shape, slot, 0, 1)),
      ...slotsOf(3, 40).map((slot) => patternItem(shape, slot, 1, 1)),
    ];
    await store.write(items);
    const cleared = items.filter((_, index) => index % 2 === 1).map((item) => ({ ...item, generation: 4 }));
    const ends = await store.clear(cleared);
    expect(ends.map((end) => end.reason)).toEqual(cleared.map(() => ''));
    const found = items.map((item, index) => ({
      ...item,
      generation: index % 2 === 1 ? 4 : 1,
      bytes: new Uint8Array(item.bytes.byteLength).fill(0xee),
    }));
    expect((await store.read(found)).map((end) => end.reason)).toEqual(items.map(() => ''));
    found.forEach((item, index) => {
      const wanted = index % 2 === 1 ? new Uint8Array(item.bytes.byteLength) : items[index].bytes;
      expect(Buffer.compare(item.bytes, wanted), `slot ${item.slot}`).toBe(0);
    });
  });

  it('refuses a generation that the slot has left behind, and places that the pool has not', async () => {
    const shape = poolShape(1, 4096, [4096]);
    await using store = await HbmStore.open(device.live, shape);
    const item = patternItem(shape, 0, 0, 5);
    await store.write([item]);
    const [stale, outside] = await store.clear([
      { slot: 0, sizeClass: 0, generation: 4 },
      { slot: 1, sizeClass: 0, generation: 1 },
    ]);
    expect(stale.reason).toMatch(/stale/);
    expect(outside.reason).toMatch(/outside the pool/);
    expect((await store.read([item]))[0].outcome).toBe(Outcome.LOADED);
  });
});

describe('copy', () => {
  for (const [name, slabBytesMax] of [
    ['within a slab', 1 << 20],
    ['between slabs', 4],
  ] as const) {
    it(`brings whole slots over ${name}, larger than its scratch memory too`, async () => {
      const shape = poolShape(4, 40_000, [40_000, 10_004]);
      await using store = await HbmStore.open(device.live, shape, {
        slabBytesMax,
        stagingBytes: 4096,
        verifyWrites: 'kernel',
      });
      const sources = [patternItem(shape, 0, 0, 1), patternItem(shape, 4, 1, 1), patternItem(shape, 5, 1, 1)];
      await store.write(sources);
      const to = [shape.slotsPerPageMax * 2, shape.slotsPerPageMax * 3, shape.slotsPerPageMax * 3 + 2];
      const ends = await store.copy(
        sources.map((item, index) => ({
          sizeClass: item.sizeClass,
          fromSlot: item.slot,
          fromGeneration: 1,
          toSlot: to[index],
          toGeneration: 7,
        })),
      );
      expect(ends.map((end) => end.reason)).toEqual(['', '', '']);
      const copies = await store.countMismatches(
        sources.map((item, index) => ({
          sizeClass: item.sizeClass,
          slot: to[index],
          generation: 7,
          seedLo: item.slot,
          seedHi: 1,
        })),
      );
      expect(copies.map((end) => end.mismatchedWords)).toEqual([0, 0, 0]);
    });
  }

  it('names what is wrong with either place', async () => {
    const shape = poolShape(2, 4096, [4096]);
    await using store = await HbmStore.open(device.live, shape, { verifyWrites: 'kernel' });
    await store.write([patternItem(shape, 0, 0, 5)]);
    const copy = (
      fromGeneration: number,
      toSlot: number,
    ): Promise<readonly { readonly outcome: Outcome }[]> =>
      store.copy([{ sizeClass: 0, fromSlot: 0, fromGeneration, toSlot, toGeneration: 1 }]);
    expect((await copy(4, 1))[0].outcome).toBe(Outcome.REFUSED);
    expect((await copy(6, 1))[0].outcome).toBe(Outcome.CORRUPT);
    expect((await copy(5, 0))[0].outcome).toBe(Outcome.REFUSED);
    expect((await copy(5, 1))[0].outcome).toBe(Outcome.LOADED);
  });
});
