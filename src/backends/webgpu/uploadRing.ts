/**
 * Host memory that the GPU reads: MAP_WRITE buffers, mapped from their creation on and again after every use.
 *
 *     acquire --> fill bytes() --> seal() --> submit copies from it --> recycle(): mapped again by the fence --> free
 *
 * A buffer is free again only when its mapAsync is fulfilled, and that waits for the submitted copies. Write-only for
 * the CPU: such memory may be uncached, so nothing here reads it back.
 */

import { BufferUsage, MapMode } from './gpuConstants.ts';
import type { LiveDevice } from './liveDevice.ts';
import { StagingRing } from './stagingRing.ts';
import type { StagingSpread } from './stagingSpread.ts';

export class UploadRing extends StagingRing {
  constructor(live: LiveDevice, label: string, spread: StagingSpread) {
    const usage = BufferUsage.MAP_WRITE | BufferUsage.COPY_SRC;
    super(live, `${label}.upload`, { usage, mappedAtCreation: true }, spread);
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
    const mapped = await this.live.whenMapped(buffer, MapMode.WRITE, this.bufferBytes);
    if (mapped) this.release(buffer);
    return mapped;
  }
}
