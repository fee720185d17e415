/** Bytes that lie on a device, read back by the test itself. */

import { BufferUsage, MapMode } from '../../src/backends/webgpu/device.ts';
import type { SlotBuffer } from '../../src/backends/webgpu/types.ts';

export async function deviceBytes(
  device: GPUDevice,
  { buffer, offsetBytes, sizeBytes }: SlotBuffer,
): Promise<Uint8Array> {
  const usage = BufferUsage.MAP_READ | BufferUsage.COPY_DST;
  const read = device.createBuffer({ size: sizeBytes, usage });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, offsetBytes, read, 0, sizeBytes);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(MapMode.READ);
  const bytes = new Uint8Array(read.getMappedRange()).slice();
  read.destroy();
  return bytes;
}
