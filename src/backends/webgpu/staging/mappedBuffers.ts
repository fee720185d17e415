/**
 * Host memory that the GPU reaches directly: for each direction a fixed number of equal mappable buffers,
 * lent one by one. Whoever finds none free waits in line, which bounds the bytes in flight. When the device
 * is gone, everyone who waits or asks gets `undefined`.
 *
 *     UploadBuffers     acquire --> fill bytesOf() --> unmap() --> submit copies --> recycle(): mapped, free
 *     ReadbackBuffers   acquire --> submit copies --> land(): `use` sees the bytes --> free
 *
 * Upload memory may be uncached, so nothing here reads it back.
 *
 * Hazard, views that outlive their buffer: Dawn frees a mapping when the GPUBuffer is garbage-collected, and
 * touching a view on it then ends the process (SIGSEGV). So buffers are held strongly until `destroy`, mapped
 * ranges are taken in this file only, and no view is used after `unmap`, or outside of `use`.
 */

import { BufferUsage, MapMode } from '../device/gpuConstants.ts';
import type { LiveDevice } from '../device/liveDevice.ts';

/** The mapped buffers of one direction. */
export interface StagingSize {
  readonly bytes: number;
  readonly count: number;
}

class MappedBuffers {
  readonly size: StagingSize;
  protected readonly live: LiveDevice;
  readonly #buffers: readonly GPUBuffer[];
  readonly #free: GPUBuffer[];
  readonly #waiters: ((buffer: GPUBuffer | undefined) => void)[] = [];
  readonly #unsubscribe: () => void;
  #allBack: (() => void) | undefined;
  #closed = false;

  protected constructor(
    live: LiveDevice,
    size: StagingSize,
    label: string,
    usage: GPUBufferUsageFlags,
    mappedAtCreation: boolean,
  ) {
    this.live = live;
    this.size = size;
    this.#buffers = Array.from({ length: size.count }, (_, index) =>
      live.device.createBuffer({ label: `${label}${index}`, size: size.bytes, usage, mappedAtCreation }),
    );
    this.#free = [...this.#buffers];
    this.#unsubscribe = live.onLost(() => this.#close());
  }

  /** A buffer as soon as one is free; undefined when the device is gone. */
  async acquire(): Promise<GPUBuffer | undefined> {
    if (this.#closed) return undefined;
    const free = this.#free.pop();
    if (free !== undefined) return free;
    return new Promise((resolve) => {
      this.#waiters.push(resolve);
    });
  }

  /** Waits until every buffer is back, unless the device is gone, and frees the memory. */
  async destroy(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#allBack = resolve;
      if (this.#closed || this.#free.length === this.#buffers.length) resolve();
    });
    this.#close();
    for (const buffer of this.#buffers) buffer.destroy();
  }

  protected release(buffer: GPUBuffer): void {
    const next = this.#waiters.shift();
    if (next !== undefined) {
      next(buffer);
      return;
    }
    this.#free.push(buffer);
    if (this.#free.length === this.#buffers.length) this.#allBack?.();
  }

  #close(): void {
    this.#closed = true;
    this.#unsubscribe();
    this.#allBack?.();
    for (const resolve of this.#waiters.splice(0)) resolve(undefined);
  }
}

export class UploadBuffers extends MappedBuffers {
  constructor(live: LiveDevice, size: StagingSize, label: string) {
    super(live, size, `${label}.upload`, BufferUsage.MAP_WRITE | BufferUsage.COPY_SRC, true);
  }

  /** The bytes to fill, of a buffer just acquired. They are gone after `unmap`. */
  bytesOf(buffer: GPUBuffer): Uint8Array<ArrayBuffer> {
    return new Uint8Array(buffer.getMappedRange());
  }

  /** Once the copies out of it are submitted. True when they are done, false on a lost device. */
  async recycle(buffer: GPUBuffer): Promise<boolean> {
    const mapped = await this.live.whenMapped(buffer, MapMode.WRITE, this.size.bytes);
    if (mapped) this.release(buffer);
    return mapped;
  }
}

export class ReadbackBuffers extends MappedBuffers {
  constructor(live: LiveDevice, size: StagingSize, label: string) {
    super(live, size, `${label}.readback`, BufferUsage.MAP_READ | BufferUsage.COPY_DST, false);
  }

  /**
   * Calls `use` with the first `bytes` bytes of the buffer as soon as they have arrived, and frees the
   * buffer. The view is gone when `use` returns. False when the device is gone, also when it goes in the
   * moment of arrival.
   * @param errors what the device finds wrong with the commands that fill the buffer: `use` is told
   */
  async land(
    buffer: GPUBuffer,
    bytes: number,
    use: (landed: ArrayBuffer, error: string) => void,
    errors: Promise<string> = Promise.resolve(''),
  ): Promise<boolean> {
    const [mapped, error] = await Promise.all([this.live.whenMapped(buffer, MapMode.READ, bytes), errors]);
    if (!mapped || this.live.loss !== undefined) return false;
    try {
      use(buffer.getMappedRange(0, bytes), error);
      buffer.unmap();
    } catch (error) {
      this.live.giveUp(`reading ${buffer.label}`, error);
      return false;
    }
    this.release(buffer);
    return true;
  }
}
