import { describe, expect, it, vi } from 'vitest';
import { verificationNames } from '../../../src/backends/webgpu/arrivals.ts';
import { HbmStore } from '../../../src/backends/webgpu/index.ts';
import { uploadPathNames } from '../../../src/backends/webgpu/uploadPath.ts';
import { poolShape } from '../../../src/runtime/pool/shape.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../src/testing/patternItems.ts';
import { softwareDevice } from './softwareDevice.ts';

const device = softwareDevice();
const shape = poolShape(4, 65_536, [16_384]);

describe('how uploads go', () => {
  it('is measured by the first pool of a device, told, and not measured again', async () => {
    await using first = await HbmStore.open(device.live, shape);
    const facts = first.describe();
    expect(uploadPathNames).toContain(facts.uploadPath);
    expect(['kernel', 'readback']).toContain(facts.verification);
    expect(facts.strategy).toBe('measured');
    const createBuffer = vi.spyOn(device.live.device, 'createBuffer');
    await using second = await HbmStore.open(device.live, shape);
    expect(second.describe()).toEqual(facts);
    expect(createBuffer.mock.calls.filter(([{ label }]) => label?.includes('trial'))).toEqual([]);
    vi.restoreAllMocks();
  });

  it('is what the caller says where he says it', async () => {
    for (const uploadPath of uploadPathNames) {
      for (const verifyWrites of verificationNames) {
        await using store = await HbmStore.open(device.live, shape, { uploadPath, verifyWrites });
        expect(store.describe()).toMatchObject({ uploadPath, verification: verifyWrites, strategy: 'given' });
        expect(store.verifies.onWrite).toBe(verifyWrites !== 'none');
      }
    }
  });

  it('does not change what arrives, nor what is noticed, when items straddle batches', async () => {
    for (const uploadPath of uploadPathNames) {
      for (const verifyWrites of ['kernel', 'readback'] as const) {
        const options = { uploadPath, verifyWrites, stagingBytes: 5000, stagingBuffers: 2 };
        await using store = await HbmStore.open(device.live, shape, options);
        const items = [0, 3, 4, 9, 15].map((slot) => patternItem(shape, slot, 0, 1));
        const bad = { ...items[2], digest: { ...items[2].digest, hi: items[2].digest.hi ^ 1 } };
        const ends = await store.write(items.map((item, i) => (i === 2 ? bad : item)));
        expect(ends.map((end) => end.reason === '')).toEqual([true, true, false, true, true]);
        for (const item of [items[0], items[1], items[3], items[4]]) {
          const target = emptyItem(item);
          await store.read([target]);
          expect(mismatchedWords(target)).toBe(0);
        }
      }
    }
  });
});
