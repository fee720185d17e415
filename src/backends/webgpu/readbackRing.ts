/**
 * Host memory that the GPU writes: MAP_READ buffers, separate from the upload ring so that neither direction waits for
 * the other's buffers.
 *
 *     acquire --> submit copies into it --> land(): bytes, when the copies have arrived --> release()
 */

import { BufferUsage, MapMode } from './gpuConstants.ts';
import { LendingRing } from './lendingRing.ts';
import type { LiveDevice } from './liveDevice.ts';

export class ReadbackRing {
  readonly bufferBytes: number;
  readonly #live: LiveDevice;
  readonly #buffers: readonly GPUBuffer[];
  readonly #ring: LendingRing<GPUBuffer>;

  constructor(live: LiveDevice, label: string, bufferBytes: number, count: number) {
    this.bufferBytes = bufferBytes;
    this.#live = live;
    this.#buffers = Array.from({ length: count }, (_, index) =>
      live.device.createBuffer({
        label: `${label}.readback${index}`,
        size: bufferBytes,
        usage: BufferUsage.MAP_READ | BufferUsage.COPY_DST,
      }),
    );
    this.#ring = new LendingRing(live, this.#buffers);
  }

  acquire(): GPUBuffer | undefined | Promise<GPUBuffer | undefined> {
    return this.#ring.acquire();
  }

  /** The first `bytes` bytes of the buffer, or `undefined` when the device is gone. Dead after `release`. */
  async land(buffer: GPUBuffer, bytes: number): Promise<ArrayBuffer | undefined> {
    const mapped = await this.#live.whenMapped(buffer, MapMode.READ, bytes);
    return mapped ? buffer.getMappedRange(0, bytes) : undefined;
  }

  release(buffer: GPUBuffer): void {
    buffer.unmap();
    this.#ring.release(buffer);
  }

  /** Waits for what is lent, then frees the memory. */
  async destroy(): Promise<void> {
    await this.#ring.drain();
    for (const buffer of this.#buffers) buffer.destroy();
  }
}
