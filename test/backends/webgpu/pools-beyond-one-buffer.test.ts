import { expect, it } from 'vitest';
import { HbmStore } from '../../../src/backends/webgpu/index.ts';
import { poolShape } from '../../../src/runtime/index.ts';
import { softwareDevice } from './softwareDevice.ts';

const device = softwareDevice();

it('a pool as large as the largest buffer, or larger, is to be had', async () => {
  const pageBytes = 8 * 1024 ** 2;
  const { maxBufferSize } = device.live.device.limits;
  for (const capacityBytes of [maxBufferSize, 1.25 * maxBufferSize]) {
    const shape = poolShape(Math.ceil(capacityBytes / pageBytes), pageBytes, [pageBytes]);
    await using store = await HbmStore.open(device.live, shape);
    expect(store.capacityBytes).toBe(shape.capacityBytes);
    expect(store.describe().slabs).toBe(2);
  }
});
