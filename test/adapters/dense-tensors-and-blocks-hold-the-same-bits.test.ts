/** The kernels between dense tensors and blocks give the bits that the copies in host memory give, and touch no others. */

import { expect, test } from 'vitest';
import {
  copyBlock,
  type DenseLayer,
  denseLayers,
  readBuffer,
} from '../../src/adapters/transformers/blockCopies.ts';
import { DeviceCopies } from '../../src/adapters/transformers/deviceCopies.ts';
import { type KVLayout, kvLayout } from '../../src/index.ts';
import { testDevice } from '../backends/webgpu/testDevice.ts';
import { randomNumbers } from './decoders.ts';

const software = testDevice();
const STORAGE_AND_COPIES = 0x8c;

const shapes = [
  ['f32, vectors', { layers: 2, kvHeads: 2, headDim: 16, dtype: 'f32' }],
  ['f16, pairs of words', { layers: 3, kvHeads: 1, headDim: 12, dtype: 'f16' }],
  ['f16, words', { layers: 1, kvHeads: 3, headDim: 6, dtype: 'f16' }],
] as const;

/** Blocks in two slabs, in no order, with room between them. */
function placesIn({ blockBytes }: KVLayout) {
  const spots = [5, 0, 3, 7];
  return spots.map((spot, index) => ({ index, slab: spot % 2, offsetBytes: spot * blockBytes }));
}

test.each(shapes)('bits are the same in both directions (%s)', async (_, shape) => {
  const { device } = software.live;
  const layout = kvLayout({ ...shape, blockTokens: 16 });
  const { blockBytes } = layout;
  const places = placesIn(layout);
  const next = randomNumbers(7);
  const random = (bytes: number): Uint8Array<ArrayBuffer> => Uint8Array.from({ length: bytes }, () => next());
  const buffer = (bytes: Uint8Array<ArrayBuffer>): GPUBuffer => {
    const made = device.createBuffer({ size: Math.ceil(bytes.length / 16) * 16, usage: STORAGE_AND_COPIES });
    device.queue.writeBuffer(made, 0, bytes);
    return made;
  };
  const read = (from: GPUBuffer, bytes: number): Promise<Uint8Array> =>
    software.live.waitFor(() => readBuffer(device, from, bytes));
  const before = [random(8 * blockBytes), random(8 * blockBytes)];
  const slabs = before.map(buffer);
  const copies = await DeviceCopies.open(software.live, slabs, layout);

  // 70 tokens: the last six are in no block
  const tokens = 70;
  const layers: DenseLayer[] = denseLayers(layout, tokens).map(({ key, value }) => ({
    key: random(key.length),
    value: random(value.length),
  }));
  const dense = layers.flatMap(({ key, value }) => [key, value]) as Uint8Array<ArrayBuffer>[];
  await software.live.waitFor(() => copies.scatter(dense.map(buffer), tokens, places));
  for (const { index, slab, offsetBytes } of places) {
    copyBlock(
      'block',
      layout,
      before[slab].subarray(offsetBytes, offsetBytes + blockBytes),
      layers,
      tokens,
      index,
    );
  }
  for (const [i, slab] of slabs.entries()) expect(await read(slab, slab.size)).toEqual(before[i]);

  const whole = await software.live.waitFor(() => copies.gather(places, 64));
  for (const [i, tensor] of whole.entries()) {
    const found = await read(tensor, copies.tensorBytes(64));
    for (let head = 0; head < layout.kvHeads; head++) {
      const { rowBytes } = layout;
      const wanted = dense[i].subarray(head * tokens * rowBytes, (head * tokens + 64) * rowBytes);
      expect(found.subarray(head * 64 * rowBytes, (head + 1) * 64 * rowBytes)).toEqual(wanted);
    }
  }
  for (const each of [...slabs, ...whole]) each.destroy();
});

test('tensors above what a device can have are an error', async () => {
  const { device } = software.live;
  const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 16, dtype: 'f32', blockTokens: 16 });
  const slab = device.createBuffer({ size: 16 * layout.blockBytes, usage: STORAGE_AND_COPIES });
  const copies = await DeviceCopies.open(software.live, [slab], layout);
  const tokens = Math.ceil(device.limits.maxStorageBufferBindingSize / layout.rowBytes) + 16;
  await expect(
    software.live.waitFor(() => copies.gather([{ index: 0, slab: 0, offsetBytes: 0 }], tokens)),
  ).rejects.toThrow(expect.objectContaining({ code: 'TKV_DEVICE', field: 'hbmBytes' }));
  expect(software.live.deviceErrors, 'told to the caller, and no error of the device').toEqual({
    count: 0,
    last: '',
  });
  slab.destroy();
});
