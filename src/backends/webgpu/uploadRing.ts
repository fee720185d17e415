/**
 * Host memory that the GPU reads: MAP_WRITE buffers, mapped from their creation on and again after every use.
 *
 *     acquire --> fill bytes() --> seal() --> submit copies from it --> recycle(): mapped again by the fence --> free
 *
 * A buffer is free again only when its mapAsync is fulfilled, and that waits for the submitted copies. Write-only for
 * the CPU: such memory may be uncached, so nothing here reads it back.
 *
 * Hazard, views that outlive their buffer: Dawn frees a mapping when the GPUBuffer is garbage-collected, and touching a
 * view on it then ends the process (SIGSEGV). So both rings hold their buffers strongly until `destroy`, mapped ranges
 * are taken in the two rings only, and no view is used after `seal` here, or outside of `use` in readbackRing.ts.
 */

import { BufferUsage, MapMode } from './gpuConstants.ts';
import { LendingRing } from './lendingRing.ts';
import type { LiveDevice } from './liveDevice.ts';

export class UploadRing {
  readonly bufferBytes: number;
  readonly #live: LiveDevice;
  readonly #buffers: readonly GPUBuffer[];
  readonly #ring: LendingRing<GPUBuffer>;

  constructor(live: LiveDevice, label: string, bufferBytes: number, count: number) {
    this.bufferBytes = bufferBytes;
    this.#live = live;
    this.#buffers = Array.from({ length: count }, (_, index) =>
      live.device.createBuffer({
        label: `${label}.upload${index}`,
        size: bufferBytes,
        usage: BufferUsage.MAP_WRITE | BufferUsage.COPY_SRC,
        mappedAtCreation: true,
      }),
    );
    this.#ring = new LendingRing(live, this.#buffers);
  }

  acquire(): GPUBuffer | undefined | Promise<GPUBuffer | undefined> {
    return this.#ring.acquire();
  }

  /** The bytes to fill, of a buffer just acquired. Dead after `seal`. */
  bytes(buffer: GPUBuffer): Uint8Array<ArrayBuffer> {
    return new Uint8Array(buffer.getMappedRange());
  }

  /** Hands the filled bytes to the GPU. */
  seal(buffer: GPUBuffer): void {
    buffer.unmap();
  }

  /**
   * To be called when the copies from the sealed buffer are submitted. True when they are done and the buffer is free,
   * false when the device is gone.
   */
  async recycle(buffer: GPUBuffer): Promise<boolean> {
    const mapped = await this.#live.whenMapped(buffer, MapMode.WRITE, this.bufferBytes);
    if (mapped) this.#ring.release(buffer);
    return mapped;
  }

  /** Waits for what is lent, then frees the memory. */
  async destroy(): Promise<void> {
    await this.#ring.drain();
    for (const buffer of this.#buffers) buffer.destroy();
  }
}
