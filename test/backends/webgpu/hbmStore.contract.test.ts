import { HbmStore } from '../../../src/backends/webgpu/hbmStore.ts';
import type { HbmStoreOptions } from '../../../src/backends/webgpu/types.ts';
import { type TierUnderTest, tierContract } from '../../../src/testing/tierContract.ts';
import { testDevice } from './testDevice.ts';

const device = testDevice();

const variants: Record<string, HbmStoreOptions> = {
  'webgpu as it is opened': {},
  'webgpu with buffers smaller than a slot, and a slab a page': {
    slabBytesMax: 4,
    stagingBytes: 4096,
    stagingBuffers: 2,
  },
  'webgpu without verification': { stagingBytes: 40_000, stagingBuffers: 3, verifyWrites: false },
  'webgpu verified by the kernel': { verifyWrites: 'kernel' },
  'webgpu with one buffer, verified by the kernel': {
    verifyWrites: 'kernel',
    stagingBytes: 20_008,
    stagingBuffers: 1,
  },
  'webgpu with one buffer, verified by readback': {
    verifyWrites: 'readback',
    stagingBytes: 20_008,
    stagingBuffers: 1,
  },
};

for (const [name, options] of Object.entries(variants)) {
  tierContract(
    name,
    async (shape): Promise<TierUnderTest> => ({
      store: await HbmStore.open(device.live, shape, options),
      movesBytes: true,
    }),
  );
}
