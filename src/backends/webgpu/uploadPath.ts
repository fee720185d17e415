/**
 * How bytes get from host memory into slabs. Either way an upload is a batch of pieces of bounded size, encoded into one
 * submit, and `done` tells when the pieces are in place and the batch's room is free again.
 *
 *     ring          memcpy into a mapped buffer, then copies from it to the slabs
 *     writeBuffer   one queue.writeBuffer a piece: the driver's own staging
 *
 * Which one is faster depends on the device: `strategy.ts` measures it.
 */

import { CopyRuns } from './copyRuns.ts';
import { writeWords } from './hostBytes.ts';
import { LendingRing } from './lendingRing.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { StagingSpread } from './stagingSpread.ts';
import { UploadRing } from './uploadRing.ts';

export const uploadPathNames = ['ring', 'writeBuffer'] as const;
export type UploadPathName = (typeof uploadPathNames)[number];

/** One batch of pieces on its way. */
export interface UploadBatch {
  /** Bytes put so far, and how many fit. */
  readonly used: number;
  readonly capacity: number;
  /** Where the pieces lie: in the slabs, and one behind the other from 0 on. */
  readonly copies: CopyRuns;
  put(bytes: Uint8Array, slab: number, slabOffset: number): void;
  /** Encodes what brings the pieces in place. The caller submits the encoder, then calls `done`. */
  encode(encoder: GPUCommandEncoder): void;
  /** True when the pieces are in place, false when the device is gone. */
  done(): Promise<boolean>;
}

export interface UploadPath {
  readonly name: UploadPathName;
  /** An empty batch as soon as there is room; undefined when the device is gone. */
  begin(): Promise<UploadBatch | undefined>;
  destroy(): Promise<void>;
}

export function openUploadPath(
  name: UploadPathName,
  live: LiveDevice,
  slabs: readonly GPUBuffer[],
  label: string,
  spread: StagingSpread,
): UploadPath {
  return name === 'ring' ? new RingPath(live, slabs, label, spread) : new QueuePath(live, slabs, spread);
}

class RingPath implements UploadPath {
  readonly name = 'ring';
  readonly #slabs: readonly GPUBuffer[];
  readonly #ring: UploadRing;

  constructor(live: LiveDevice, slabs: readonly GPUBuffer[], label: string, spread: StagingSpread) {
    this.#slabs = slabs;
    this.#ring = new UploadRing(live, label, spread);
  }

  async begin(): Promise<UploadBatch | undefined> {
    const staging = await this.#ring.acquire();
    return staging === undefined ? undefined : new RingBatch(this.#ring, staging, this.#slabs);
  }

  destroy(): Promise<void> {
    return this.#ring.destroy();
  }
}

class RingBatch implements UploadBatch {
  readonly capacity: number;
  readonly copies: CopyRuns = new CopyRuns();
  readonly #ring: UploadRing;
  readonly #staging: GPUBuffer;
  readonly #slabs: readonly GPUBuffer[];
  readonly #bytes: Uint8Array;
  #used = 0;

  constructor(ring: UploadRing, staging: GPUBuffer, slabs: readonly GPUBuffer[]) {
    this.#ring = ring;
    this.#staging = staging;
    this.#slabs = slabs;
    this.#bytes = ring.bytes(staging);
    this.capacity = ring.spread.now.bytes;
  }

  get used(): number {
    return this.#used;
  }

  put(bytes: Uint8Array, slab: number, slabOffset: number): void {
    this.#bytes.set(bytes, this.#used);
    this.copies.add(slab, slabOffset, this.#used, bytes.byteLength);
    this.#used += bytes.byteLength;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#ring.seal(this.#staging);
    this.copies.encodeToSlabs(encoder, this.#staging, this.#slabs);
  }

  done(): Promise<boolean> {
    return this.#ring.recycle(this.#staging);
  }
}

class QueuePath implements UploadPath {
  readonly name = 'writeBuffer';
  readonly #spread: StagingSpread;
  readonly #live: LiveDevice;
  readonly #slabs: readonly GPUBuffer[];
  readonly #room: LendingRing<number>;

  constructor(live: LiveDevice, slabs: readonly GPUBuffer[], spread: StagingSpread) {
    this.#spread = spread;
    this.#live = live;
    this.#slabs = slabs;
    const rooms = Array.from({ length: spread.most.buffers }, (_, i) => i);
    this.#room = new LendingRing(live, rooms, () => spread.now.buffers);
    spread.isLentBy(this.#room);
  }

  async begin(): Promise<UploadBatch | undefined> {
    const room = await this.#room.acquire();
    if (room === undefined) return undefined;
    const free = (): void => this.#room.release(room);
    return new QueueBatch(this.#live, this.#slabs, this.#spread.now.bytes, free);
  }

  destroy(): Promise<void> {
    return this.#room.drain();
  }
}

class QueueBatch implements UploadBatch {
  readonly capacity: number;
  readonly copies: CopyRuns = new CopyRuns();
  readonly #live: LiveDevice;
  readonly #slabs: readonly GPUBuffer[];
  readonly #free: () => void;
  #used = 0;

  constructor(live: LiveDevice, slabs: readonly GPUBuffer[], capacity: number, free: () => void) {
    this.#live = live;
    this.#slabs = slabs;
    this.capacity = capacity;
    this.#free = free;
  }

  get used(): number {
    return this.#used;
  }

  put(bytes: Uint8Array, slab: number, slabOffset: number): void {
    writeWords(this.#live.device.queue, this.#slabs[slab], bytes, slabOffset);
    this.copies.add(slab, slabOffset, this.#used, bytes.byteLength);
    this.#used += bytes.byteLength;
  }

  encode(): void {}

  async done(): Promise<boolean> {
    const done = await this.#live.whenDone();
    if (done) this.#free();
    return done;
  }
}
