import { afterEach, describe, expect, it, vi } from 'vitest';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome, outcomeNames } from '../../../src/runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../../src/runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/index.ts';
import { testDevice } from './testDevice.ts';

const device = testDevice();

afterEach(() => vi.restoreAllMocks());

const names = (results: readonly StoreResult[]): string[] => results.map((end) => outcomeNames[end.outcome]);
const allLoaded = (results: readonly StoreResult[]): void => {
  expect(new Set(names(results))).toEqual(new Set(['loaded']));
};

describe('mapped buffers', () => {
  it('stream a batch many times their size through, in both directions', async () => {
    const shape = poolShape(8, 64 * 4100, [64 * 4100, 4100]);
    const options = { stagingBytes: 16_384, stagingBuffers: 2 };
    await using store = await HbmStore.open(device.live, shape, options);
    const items: StoreItem[] = [];
    for (let page = 0; page < 8; page++) {
      const slots = page % 2 === 0 ? 1 : 64;
      for (let index = 0; index < slots; index++) {
        items.push(patternItem(shape, page * shape.slotsPerPageMax + index, page % 2, 1));
      }
    }
    for (let round = 0; round < 3; round++) {
      allLoaded(await store.write(items));
      const targets = items.map((item) => emptyItem(item));
      allLoaded(await store.read(targets));
      expect(targets.map(mismatchedWords)).toEqual(targets.map(() => 0));
    }
  });

  it('carry reads and writes of different slots at the same time', async () => {
    const shape = poolShape(2, 1 << 20, [65_536]);
    await using store = await HbmStore.open(device.live, shape, { stagingBytes: 131_072, stagingBuffers: 2 });
    const kept = Array.from({ length: 16 }, (_, slot) => patternItem(shape, slot, 0, 1));
    await store.write(kept);
    const fresh = Array.from({ length: 16 }, (_, slot) => patternItem(shape, 16 + slot, 0, 1));
    const targets = kept.map((item) => emptyItem(item));
    const [writes, reads] = await Promise.all([store.write(fresh), store.read(targets)]);
    allLoaded(writes);
    allLoaded(reads);
    expect(targets.map(mismatchedWords)).toEqual(targets.map(() => 0));
  });

  it('make no GPU objects once the pool is open', async () => {
    const shape = poolShape(4, 65_536, [4096]);
    await using store = await HbmStore.open(device.live, shape);
    const createBuffer = vi.spyOn(device.live.device, 'createBuffer');
    const createBindGroup = vi.spyOn(device.live.device, 'createBindGroup');
    const items = Array.from({ length: 64 }, (_, slot) => patternItem(shape, slot, 0, 1));
    for (let round = 0; round < 20; round++) {
      allLoaded(await store.write(items));
      allLoaded(await store.read(items.map((item) => emptyItem(item))));
      allLoaded(await store.seal(items));
    }
    expect(createBuffer).not.toHaveBeenCalled();
    expect(createBindGroup).not.toHaveBeenCalled();
  });

  it('bring many small calls of one turn over in one submit, neighbours in one copy', async () => {
    const shape = poolShape(4, 65_536, [4096]);
    await using store = await HbmStore.open(device.live, shape, { verifyWrites: 'kernel' });
    const { queue } = device.live.device;
    const submit = vi.spyOn(queue, 'submit');
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
    const items = Array.from({ length: 64 }, (_, slot) => patternItem(shape, slot, 0, 1));
    const ends = await Promise.all(items.map((item) => store.write([item])));
    allLoaded(ends.flat());
    expect(submit).toHaveBeenCalledTimes(2); // the slots, and their digests on the way back
    expect(copies[0]).toBe(64 * 4096);
    expect(copies).toHaveLength(2);

    copies.length = 0;
    submit.mockClear();
    await Promise.all(items.map((item) => store.read([emptyItem(item)])));
    expect(submit).toHaveBeenCalledTimes(1);
    expect(copies).toEqual([64 * 4096]);
  });
});

describe('arrival', () => {
  it('is corrupt for exactly the slots whose bytes are not what their digest says, down to one bit', async () => {
    const shape = poolShape(4, 64 * 1004, [1004]);
    await using store = await HbmStore.open(device.live, shape, { stagingBytes: 8000, stagingBuffers: 3 });
    const items = Array.from({ length: 256 }, (_, slot) => patternItem(shape, slot, 0, 1));
    const bad = new Map([
      [0, 0],
      [7, 1003],
      [8, 502],
      [100, 250],
      [255, 1000],
    ]);
    for (const [slot, byteIndex] of bad) items[slot].bytes[byteIndex] ^= 1 << (slot % 8);
    const ends = names(await store.write(items));
    expect(ends).toEqual(items.map((item) => (bad.has(item.slot) ? 'corrupt' : 'loaded')));
    const reads = names(await store.read(items.map((item) => emptyItem(item))));
    expect(reads).toEqual(items.map((item) => (bad.has(item.slot) ? 'missing' : 'loaded')));
  });

  it('notices two words that changed places', async () => {
    const shape = poolShape(1, 4096, [4096]);
    await using store = await HbmStore.open(device.live, shape);
    const item = patternItem(shape, 0, 0, 1);
    const words = new Uint32Array(item.bytes.buffer);
    [words[10], words[900]] = [words[900], words[10]];
    expect(names(await store.write([item]))).toEqual(['corrupt']);
  });
});

describe('host memory', () => {
  it('of a shared buffer is taken and filled like any other', async () => {
    const shape = poolShape(1, 4096, [4096]);
    await using store = await HbmStore.open(device.live, shape);
    const item = patternItem(shape, 0, 0, 1);
    const shared = new Uint8Array(new SharedArrayBuffer(4096));
    shared.set(item.bytes);
    allLoaded(await store.write([{ ...item, bytes: shared }]));
    shared.fill(0);
    allLoaded(await store.read([{ ...item, bytes: shared }]));
    expect(Buffer.compare(shared, item.bytes)).toBe(0);
  });

  it('hazard: views that the binding cannot take are refused with a remedy, and the process lives', async () => {
    const shape = poolShape(1, 4096, [4096]);
    await using store = await HbmStore.open(device.live, shape);
    const item = patternItem(shape, 0, 0, 1);
    const buffer = new ArrayBuffer(4096);
    const views = [
      new Float16Array(buffer),
      new Float32Array(buffer),
      new DataView(buffer),
      new SharedArrayBuffer(4096),
    ];
    for (const bytes of views) {
      for (const call of ['write', 'read'] as const) {
        const [end] = await store[call]([{ ...item, bytes: bytes as unknown as Uint8Array }]);
        expect(end.outcome).toBe(Outcome.REFUSED);
        expect(end.reason).toMatch(/must be a Uint8Array.*new Uint8Array/);
      }
    }
  });

  it('that is detached before or during a call is refused', async () => {
    const shape = poolShape(1, 4096, [4096]);
    await using store = await HbmStore.open(device.live, shape);
    const item = patternItem(shape, 0, 0, 1);
    allLoaded(await store.write([item]));
    const target = emptyItem(item);
    const read = store.read([target]);
    setImmediate(() => (target.bytes.buffer as ArrayBuffer).transfer());
    const [during] = await read;
    expect(['loaded', 'refused']).toContain(outcomeNames[during.outcome]);
    const [after] = await store.read([target]);
    expect(after.outcome).toBe(Outcome.REFUSED);
    allLoaded(await store.read([emptyItem(item)]));
  });

  it('that is detached while it is written is refused, and the slot can be written again', async () => {
    const shape = poolShape(3, 65_536, [65_536]);
    await using store = await HbmStore.open(device.live, shape, { stagingBytes: 16_384, stagingBuffers: 1 });
    const { queue } = device.live.device;
    for (const submits of [0, 2]) {
      const items = [0, 1, 2].map((slot) => patternItem(shape, slot, 0, 1 + submits));
      const takeAway = (): void => {
        if (items[1].bytes.byteLength > 0) (items[1].bytes.buffer as ArrayBuffer).transfer();
      };
      const submit = queue.submit.bind(queue);
      let count = 0;
      vi.spyOn(queue, 'submit').mockImplementation((buffers) => {
        submit(buffers);
        if (items[0].generation === 3 && ++count > 4 + submits) takeAway();
      });
      const write = store.write(items);
      if (submits === 0) takeAway();
      expect(names(await write)).toEqual(['loaded', 'refused', 'loaded']);
      vi.restoreAllMocks();
      const target = patternItem(shape, 1, 0, 1 + submits);
      expect(names(await store.read([target]))).toEqual(['missing']);
      allLoaded(await store.write([patternItem(shape, 1, 0, 1 + submits)]));
    }
  });
});
