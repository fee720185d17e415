/**
 * K and V of a block on the device. There they lie by turns, `[layer][head][K, V][token][headDim]`; callers
 * have each in an array of its own, `[layer][head][token][headDim]`.
 */

import { BufferUsage, MapMode } from '../../backends/webgpu/device/gpuConstants.ts';
import type { SlotBuffer } from '../../backends/webgpu/index.ts';
import type { KVLayout } from '../../runtime/index.ts';

export interface BlockHalves {
  readonly keyCache: Uint8Array;
  readonly valueCache: Uint8Array;
}

export async function readBlock(
  device: GPUDevice,
  { buffer, offsetBytes, sizeBytes }: SlotBuffer,
  layout: KVLayout,
): Promise<BlockHalves> {
  const usage = BufferUsage.MAP_READ | BufferUsage.COPY_DST;
  const read = device.createBuffer({ label: 'tierkv.blockData', size: sizeBytes, usage });
  try {
    const encoder = device.createCommandEncoder({ label: 'tierkv.blockData' });
    encoder.copyBufferToBuffer(buffer, offsetBytes, read, 0, sizeBytes);
    device.queue.submit([encoder.finish()]);
    await read.mapAsync(MapMode.READ);
    return apart(new Uint8Array(read.getMappedRange()), layout.kvStrideBytes);
  } finally {
    read.destroy();
  }
}

export function writeBlock(
  device: GPUDevice,
  { buffer, offsetBytes }: SlotBuffer,
  layout: KVLayout,
  halves: BlockHalves,
): void {
  device.queue.writeBuffer(buffer, offsetBytes, together(halves, layout.kvStrideBytes));
}

function apart(block: Uint8Array, planeBytes: number): BlockHalves {
  const keyCache = new Uint8Array(block.length / 2);
  const valueCache = new Uint8Array(block.length / 2);
  for (let at = 0; at < keyCache.length; at += planeBytes) {
    keyCache.set(block.subarray(2 * at, 2 * at + planeBytes), at);
    valueCache.set(block.subarray(2 * at + planeBytes, 2 * at + 2 * planeBytes), at);
  }
  return { keyCache, valueCache };
}

function together({ keyCache, valueCache }: BlockHalves, planeBytes: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(2 * keyCache.length);
  for (let at = 0; at < keyCache.length; at += planeBytes) {
    block.set(keyCache.subarray(at, at + planeBytes), 2 * at);
    block.set(valueCache.subarray(at, at + planeBytes), 2 * at + planeBytes);
  }
  return block;
}
