/**
 * The bytes of a sequence's blocks, in host memory, whatever the runtime's top tier is. Blocks on a device are copied: many
 * of them with one submission, through a buffer that is unmapped as soon as they were taken.
 */

import { BufferUsage, MapMode } from '../../backends/webgpu/device.ts';
import type { KVRuntime } from '../../embed/kvRuntime.ts';
import type { KVSequence } from '../../embed/sequenceState.ts';

/** Bytes of one copy from the device, so that a long prefix needs no buffer of its own size. */
const COPY_BYTES = 32 * 2 ** 20;

/**
 * Hands each of the first blocks of a sequence to `take`, in order. The bytes are valid during the call alone.
 * @throws what the device throws
 */
export async function readBlocks(
  runtime: KVRuntime,
  sequence: KVSequence,
  blocks: number,
  take: (bytes: Uint8Array, index: number) => void,
): Promise<void> {
  const { blockBytes } = runtime.layout;
  const most = Math.max(1, Math.floor(COPY_BYTES / blockBytes));
  const { device } = runtime;
  for (let from = 0; from < blocks; from += most) {
    const count = Math.min(most, blocks - from);
    const usage = BufferUsage.MAP_READ | BufferUsage.COPY_DST;
    const staging = device.createBuffer({ label: 'tierkv.prefix', size: count * blockBytes, usage });
    try {
      const encoder = device.createCommandEncoder({ label: 'tierkv.prefix' });
      for (let i = 0; i < count; i++) {
        const { buffer, offsetBytes } = runtime.slot(sequence, from + i);
        encoder.copyBufferToBuffer(buffer, offsetBytes, staging, i * blockBytes, blockBytes);
      }
      device.queue.submit([encoder.finish()]);
      await runtime.waitFor(() => staging.mapAsync(MapMode.READ));
      const bytes = new Uint8Array(staging.getMappedRange());
      for (let i = 0; i < count; i++) take(bytes.subarray(i * blockBytes, (i + 1) * blockBytes), from + i);
    } finally {
      staging.destroy();
    }
  }
}

/** Fills an open block. */
export function writeOpenBlock(
  runtime: KVRuntime,
  sequence: KVSequence,
  index: number,
  fill: (bytes: Uint8Array) => void,
): void {
  const { buffer, offsetBytes, sizeBytes } = runtime.slot(sequence, index);
  const bytes = new Uint8Array(sizeBytes);
  fill(bytes);
  runtime.device.queue.writeBuffer(buffer, offsetBytes, bytes);
}
