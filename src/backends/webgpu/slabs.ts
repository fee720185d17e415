/**
 * The slabs: the GPUBuffers of an HBM pool. A slab holds whole pages, so a slot never straddles two slabs:
 *
 *     slab 0                            slab 1
 *     +---------+---------+---------+   +---------+---------+
 *     | page 0  | page 1  | page 2  |   | page 3  | page 4  |      pagesPerSlab = 3
 *     +---------+---------+---------+   +---------+---------+
 *
 * Slabs are few and large: each GPUBuffer costs the binding a weak reference, and one bind group and one
 * dispatch reach all slots of a slab. They are destroyed explicitly, since GPU memory does not trigger the
 * garbage collection that would free dropped buffers.
 */

import { configError, namedError, requireInteger, TierKVError } from '../../runtime/errors.ts';
import { type PoolShape, slotOffsetBytes } from '../../runtime/tables/slotPool.ts';
import { availableMemoryBytes } from '../host/posix.ts';
import { BufferUsage, type LiveDevice } from './device.ts';
import type { SlotBuffer, SlotLocation } from './types.ts';

const SLAB_BYTES_DEFAULT = 1024 ** 3;
/**
 * Bytes kept free below the limit of a buffer: SwiftShader's limit is 1 GiB, and it refuses a buffer of 1
 * GiB.
 */
const DRIVER_BYTES = 1024 ** 2;
/** Kernels read slabs in vectors of 16 bytes, up to the end. */
const VECTOR_BYTES = 16;

export class Slabs {
  readonly shape: PoolShape;
  readonly buffers: readonly GPUBuffer[];
  readonly slabBytes: number;

  private constructor(shape: PoolShape, buffers: readonly GPUBuffer[], slabBytes: number) {
    this.shape = shape;
    this.buffers = buffers;
    this.slabBytes = slabBytes;
  }

  /**
   * @throws TKV_CONFIG if a size is not a multiple of 4 or a page is larger than a buffer may be; TKV_DEVICE
   * if the device is lost or has too little memory
   */
  static async open(
    live: LiveDevice,
    shape: PoolShape,
    label: string,
    slabBytesMax: number = SLAB_BYTES_DEFAULT,
  ): Promise<Slabs> {
    requireInteger('slabBytesMax', slabBytesMax, 4);
    requireWords('pageBytes', shape.pageBytes);
    for (const [sizeClass, bytes] of shape.slotBytes.entries())
      requireWords(`slotBytes[${sizeClass}]`, bytes);
    requireHostMemory(live, shape.capacityBytes);
    const { maxBufferSize, maxStorageBufferBindingSize } = live.device.limits;
    const limitBytes = wholeVectors(Math.min(maxBufferSize, maxStorageBufferBindingSize), Math.floor);
    if (shape.pageBytes > limitBytes) {
      const problem = `is ${shape.pageBytes}, but a buffer of this device holds ${limitBytes} bytes`;
      throw configError('pageBytes', problem, `Lower pageBytes to ${limitBytes} or less.`);
    }
    const roomBytes = Math.min(limitBytes - DRIVER_BYTES, slabBytesMax);
    const pagesPerSlab = Math.max(1, Math.floor(roomBytes / shape.pageBytes));
    const slabBytes = pagesPerSlab * shape.pageBytes;
    const buffers = await allocate(live, shape, label, pagesPerSlab);
    return new Slabs(shape, buffers, slabBytes);
  }

  locate(slot: number, sizeClass: number): SlotLocation {
    const offset = slotOffsetBytes(this.shape, slot, sizeClass);
    const slab = Math.floor(offset / this.slabBytes);
    return { slab, offsetBytes: offset - slab * this.slabBytes };
  }

  bufferOf(slot: number, sizeClass: number): SlotBuffer {
    const { slab, offsetBytes } = this.locate(slot, sizeClass);
    return { buffer: this.buffers[slab], offsetBytes, sizeBytes: this.shape.slotBytes[sizeClass] };
  }

  destroy(): void {
    for (const buffer of this.buffers) buffer.destroy();
  }
}

/** @throws TKV_CONFIG if a software device, which uses host memory, would need more than is available */
function requireHostMemory(live: LiveDevice, bytes: number): void {
  const availableBytes = availableMemoryBytes();
  if (!live.adapter.software || bytes <= availableBytes) return;
  const problem = `asks for ${bytes} bytes of a software device, and ${availableBytes} of host memory are available`;
  throw configError('hbm.capacityBytes', problem, (name) => `Lower ${name('hbm.capacityBytes')}.`);
}

function wholeVectors(bytes: number, round: (vectors: number) => number): number {
  return round(bytes / VECTOR_BYTES) * VECTOR_BYTES;
}

function requireWords(field: string, bytes: number): void {
  if (bytes % 4 === 0) return;
  const remedy = (name: (field: string) => string): string =>
    `Round ${name(field)} up to ${Math.ceil(bytes / 4) * 4}.`;
  throw configError(field, `is ${bytes}, not a multiple of 4`, remedy);
}

/** Allocates in an error scope: without one, createBuffer returns an invalid buffer when memory is short. */
async function allocate(
  live: LiveDevice,
  shape: PoolShape,
  label: string,
  pagesPerSlab: number,
): Promise<GPUBuffer[]> {
  const { device } = live;
  if (live.lostReason !== '') throw gone(live);
  device.pushErrorScope('validation');
  device.pushErrorScope('out-of-memory');
  const buffers: GPUBuffer[] = [];
  for (let page = 0; page < shape.pages; page += pagesPerSlab) {
    const bytes = Math.min(pagesPerSlab, shape.pages - page) * shape.pageBytes;
    buffers.push(
      device.createBuffer({
        label: `${label}.slab${buffers.length}`,
        size: wholeVectors(bytes, Math.ceil),
        usage: BufferUsage.STORAGE | BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
      }),
    );
  }
  const errors = await Promise.all([live.popOwnScope(), live.popOwnScope()]).catch((error: Error) => [error]);
  const error = errors.find((one) => one !== null);
  if (error === undefined && live.lostReason === '') return buffers;
  for (const buffer of buffers) buffer.destroy();
  if (live.lostReason !== '') throw gone(live);
  const field = 'hbm.capacityBytes';
  throw namedError(
    'TKV_DEVICE',
    { field },
    (name) =>
      `${name(field)} asks for ${shape.capacityBytes} bytes that the device does not give ` +
      `(${error?.message.split('\n')[0]}). ` +
      `Lower ${name(field)}, free device memory, or choose another adapter with TIERKV_ADAPTER.`,
  );
}

function gone(live: LiveDevice): TierKVError {
  const message = `The device is gone (${live.lostReason}). Open another with openDevice.`;
  return new TierKVError('TKV_DEVICE', message);
}
