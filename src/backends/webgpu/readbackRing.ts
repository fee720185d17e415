/**
 * Host memory that the GPU writes: MAP_READ buffers, separate from the upload ring so that neither direction waits for
 * the other's buffers.
 *
 *     acquire --> submit copies into it --> land(): `use` sees the bytes when they have arrived --> free
 */

import { BufferUsage, MapMode } from './gpuConstants.ts';
import type { LiveDevice } from './liveDevice.ts';
import { StagingRing } from './stagingRing.ts';
import type { StagingSpread } from './stagingSpread.ts';

export class ReadbackRing extends StagingRing {
  constructor(live: LiveDevice, label: string, spread: StagingSpread) {
    const usage = BufferUsage.MAP_READ | BufferUsage.COPY_DST;
    super(live, `${label}.readback`, { usage }, spread);
  }

  /**
   * Calls `use` with the buffer's first `bytes` bytes as soon as they have arrived, and frees the buffer. The view is
   * dead when `use` returns. False when the device is gone, be it in the very moment of arrival.
   */
  async land(buffer: GPUBuffer, bytes: number, use: (landed: ArrayBuffer) => void): Promise<boolean> {
    if (!(await this.live.whenMapped(buffer, MapMode.READ, bytes))) return false;
    try {
      const landed = buffer.getMappedRange(0, bytes);
      this.spread.look(landed, bytes);
      use(landed);
      buffer.unmap();
    } catch (error) {
      this.live.giveUp(`reading ${buffer.label} failed: ${error instanceof Error ? error.message : error}`);
      return false;
    }
    this.release(buffer);
    return true;
  }
}
