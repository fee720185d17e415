/**
 * A fixed number of equal mappable buffers, lent one by one: what the rings of both directions have in common.
 *
 * Hazard, views that outlive their buffer: Dawn frees a mapping when the GPUBuffer is garbage-collected, and touching a
 * view on it then ends the process (SIGSEGV). So a ring holds its buffers strongly until `destroy`, mapped ranges are taken
 * in the two rings only, and no view is used after `seal` of uploadRing.ts, or outside of `use` in readbackRing.ts.
 */

import { LendingRing } from './lendingRing.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { StagingSpread } from './stagingSpread.ts';

export class StagingRing {
  /** The size of its buffers. */
  readonly bufferBytes: number;
  readonly spread: StagingSpread;
  protected readonly live: LiveDevice;
  readonly #buffers: readonly GPUBuffer[];
  readonly #ring: LendingRing<GPUBuffer>;

  protected constructor(
    live: LiveDevice,
    label: string,
    buffer: Pick<GPUBufferDescriptor, 'usage' | 'mappedAtCreation'>,
    spread: StagingSpread,
  ) {
    const { bytes, buffers } = spread.most;
    this.bufferBytes = bytes;
    this.spread = spread;
    this.live = live;
    this.#buffers = Array.from({ length: buffers }, (_, index) =>
      live.device.createBuffer({ ...buffer, label: `${label}${index}`, size: bytes }),
    );
    this.#ring = new LendingRing(live, this.#buffers, () => spread.now.buffers);
    spread.isLentBy(this.#ring);
  }

  /** A free buffer at once, or as soon as there is one; undefined when the device is gone. */
  acquire(): GPUBuffer | undefined | Promise<GPUBuffer | undefined> {
    return this.#ring.acquire();
  }

  protected release(buffer: GPUBuffer): void {
    this.#ring.release(buffer);
  }

  /** Waits for what is lent, then frees the memory. */
  async destroy(): Promise<void> {
    await this.#ring.drain();
    for (const buffer of this.#buffers) buffer.destroy();
  }
}
