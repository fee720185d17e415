import { describe, expect, it } from 'vitest';
import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import { poolShape } from '../../../src/runtime/index.ts';
import { patternItem } from '../../../src/testing/index.ts';
import { testDevice } from './testDevice.ts';

const device = testDevice();

it('a pool may be as large as the largest buffer, or larger', async () => {
  const pageBytes = 8 * 1024 ** 2;
  const { maxBufferSize, maxStorageBufferBindingSize } = device.live.device.limits;
  // a GPU's largest buffer may be larger than its memory
  const largest = Math.min(maxBufferSize, maxStorageBufferBindingSize, 2 * 1024 ** 3);
  const slabBytesMax = largest < 2 * 1024 ** 3 ? largest : largest - pageBytes;
  for (const capacityBytes of [largest, 1.25 * largest]) {
    const shape = poolShape(Math.ceil(capacityBytes / pageBytes), pageBytes, [pageBytes]);
    await using store = await HbmStore.open(device.live, shape, { slabBytesMax });
    expect(store.capacityBytes).toBe(shape.capacityBytes);
    expect(store.describe().slabs).toBe(2);
    expect(store.slabs).toHaveLength(2);
  }
});

describe('slab and offset', () => {
  const shape = poolShape(7, 10_000, [10_000, 2_500, 1_004]);

  it('name different bytes for every slot, within one slab', async () => {
    await using store = await HbmStore.open(device.live, shape, { slabBytesMax: 20_000 });
    expect(store.slabs).toHaveLength(4);
    const ranges: { slab: number; from: number; to: number }[] = [];
    for (let page = 0; page < shape.pages; page++) {
      const sizeClass = page % 3;
      for (let index = 0; index < shape.slotsPerPage[sizeClass]; index++) {
        const slot = page * shape.slotsPerPageMax + index;
        const { slab, offsetBytes } = store.locate(slot, sizeClass);
        const { buffer, offsetBytes: sameOffset, sizeBytes } = store.buffer(slot, sizeClass);
        expect(store.slabs[slab]).toBe(buffer);
        expect(sameOffset).toBe(offsetBytes);
        expect(offsetBytes + sizeBytes).toBeLessThanOrEqual(buffer.size);
        const to = offsetBytes + sizeBytes;
        const overlaps = ranges.some((one) => one.slab === slab && one.from < to && offsetBytes < one.to);
        expect(overlaps, `slot ${slot} overlaps another`).toBe(false);
        ranges.push({ slab, from: offsetBytes, to });
      }
    }
  });

  it('are where the bytes of the slot lie on the device', async () => {
    await using store = await HbmStore.open(device.live, shape, { slabBytesMax: 20_000 });
    const item = patternItem(shape, 5 * shape.slotsPerPageMax + 1, 2, 1);
    const { slab, offsetBytes } = store.locate(item.slot, 2);
    device.live.device.queue.writeBuffer(store.slabs[slab], offsetBytes, item.bytes);
    const [seal] = await store.seal([item]);
    expect(seal.digest).toEqual(item.digest);
  });

  it('of a slot outside of the pool are an error', async () => {
    await using store = await HbmStore.open(device.live, shape);
    expect(() => store.locate(shape.slotLimit, 0)).toThrow(/outside/);
    expect(() => store.locate(1, 0)).toThrow(/outside/);
  });
});
