import { HbmStore, type HbmStoreOptions } from '../../../src/backends/webgpu/index.ts';
import { type TierUnderTest, tierContract } from '../../../src/testing/index.ts';
import { softwareDevice } from './softwareDevice.ts';

const device = softwareDevice();

const variants: Record<string, HbmStoreOptions> = {
  'webgpu with rings of room': {},
  'webgpu with rings smaller than a slot, and a slab a page': {
    slabBytesMax: 4,
    stagingBytes: 4096,
    stagingBuffers: 2,
  },
  'webgpu without verification': { stagingBytes: 40_000, stagingBuffers: 3, verifyWrites: false },
  'webgpu with one staging buffer': { stagingBytes: 20_008, stagingBuffers: 1 },
  'webgpu through a ring, verified by the kernel': { uploadPath: 'ring', verifyWrites: 'kernel' },
  'webgpu through a ring smaller than a slot, verified by readback': {
    uploadPath: 'ring',
    verifyWrites: 'readback',
    stagingBytes: 4096,
    stagingBuffers: 2,
  },
  'webgpu through writeBuffer, verified by the kernel': { uploadPath: 'writeBuffer', verifyWrites: 'kernel' },
  'webgpu through writeBuffer, verified by readback': {
    uploadPath: 'writeBuffer',
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
