/**
 * What HBM and host memory do without tierkv, on plain buffers of the whole size: each stage of the link alone at its best,
 * the best single transfer, and the naive one.
 */

import { hostDigest } from '../../../backends/digest/index.ts';
import { BufferUsage, MapMode } from '../../../backends/webgpu/gpuConstants.ts';
import type { LiveDevice } from '../../../backends/webgpu/index.ts';

const PIECE_BYTES = 4 * 1024 * 1024;
const DIGEST_BYTES = 1024 * 1024;

export class DeviceRuns implements Disposable {
  readonly #live: LiveDevice;
  readonly #bytes: number;
  readonly #unitBytes: number;
  readonly #host: Uint8Array<ArrayBuffer>;
  readonly #other: Uint8Array<ArrayBuffer>;
  readonly #buffers: GPUBuffer[] = [];
  readonly #pool: GPUBuffer;
  readonly #second: GPUBuffer;
  readonly #upload: GPUBuffer;
  readonly #readback: GPUBuffer;
  readonly #arrived: GPUBuffer;
  readonly #unitReadback: GPUBuffer;

  /** @param host memory like that of the DDR tier, `bytes` long */
  constructor(live: LiveDevice, host: Uint8Array<ArrayBuffer>, unitBytes: number) {
    this.#live = live;
    this.#host = host;
    this.#bytes = host.byteLength;
    this.#unitBytes = unitBytes;
    this.#other = new Uint8Array(host.byteLength).fill(1);
    const { COPY_DST, COPY_SRC, MAP_READ, MAP_WRITE, STORAGE } = BufferUsage;
    const buffer = (label: string, size: number, usage: GPUBufferUsageFlags, mappedAtCreation = false) => {
      const made = live.device.createBuffer({ label: `bench.${label}`, size, usage, mappedAtCreation });
      this.#buffers.push(made);
      return made;
    };
    // the pool of the naive way is as large as a scattered one
    this.#pool = buffer('pool', 2 * this.#bytes, STORAGE | COPY_SRC | COPY_DST);
    this.#second = buffer('second', this.#bytes, COPY_SRC | COPY_DST);
    this.#upload = buffer('upload', this.#bytes, MAP_WRITE | COPY_SRC, true);
    this.#readback = buffer('readback', this.#bytes, MAP_READ | COPY_DST);
    this.#arrived = buffer('arrived', this.#bytes, MAP_READ | COPY_DST);
    this.#unitReadback = buffer('unitReadback', unitBytes, MAP_READ | COPY_DST);
  }

  /** The device copies between two of its buffers. */
  async deviceCopy(bytes: number): Promise<void> {
    this.#submitCopy(this.#pool, 0, this.#second, 0, bytes);
    await this.#live.whenDone();
  }

  /** The device copies to another of its buffers, and what is there then to where the host can read it. */
  async deviceCopyThereAndBack(bytes: number): Promise<void> {
    this.#submitCopy(this.#second, 0, this.#pool, 0, bytes);
    this.#submitCopy(this.#pool, 0, this.#arrived, 0, bytes);
    await this.#live.whenDone();
  }

  /** The host copies to memory that it does not reuse, or piece by piece to the same few pages. */
  async memcpy(how: 'whole' | 'pieces', bytes: number): Promise<void> {
    if (how === 'whole') {
      this.#other.set(this.#host.subarray(0, bytes));
      return;
    }
    for (let at = 0; at < bytes; at += PIECE_BYTES) {
      this.#other.set(this.#host.subarray(at, Math.min(at + PIECE_BYTES, bytes)));
    }
  }

  /** The host digests what lies in its caches, as it does with what has just arrived. */
  async digest(bytes: number): Promise<void> {
    const piece = this.#host.subarray(0, Math.min(DIGEST_BYTES, bytes));
    for (let at = 0; at < bytes; at += piece.byteLength) hostDigest(piece);
  }

  /** One memcpy into one mapped buffer, one copy; fulfilled when the buffer is mapped again. */
  async singleUpload(bytes: number): Promise<void> {
    new Uint8Array(this.#upload.getMappedRange()).set(this.#host.subarray(0, bytes));
    this.#upload.unmap();
    this.#submitCopy(this.#upload, 0, this.#pool, 0, bytes);
    await this.#live.whenMapped(this.#upload, MapMode.WRITE, this.#bytes);
  }

  /** `singleUpload`, and what arrived comes back in one copy to be digested by the host. */
  async singleVerifiedUpload(bytes: number): Promise<void> {
    new Uint8Array(this.#upload.getMappedRange()).set(this.#host.subarray(0, bytes));
    this.#upload.unmap();
    this.#submitCopy(this.#upload, 0, this.#pool, 0, bytes);
    this.#submitCopy(this.#pool, 0, this.#arrived, 0, bytes);
    await Promise.all([
      this.#live.whenMapped(this.#upload, MapMode.WRITE, this.#bytes),
      this.#live.whenMapped(this.#arrived, MapMode.READ, bytes),
    ]);
    hostDigest(new Uint8Array(this.#arrived.getMappedRange(0, bytes)));
    this.#arrived.unmap();
  }

  /** One copy into one mappable buffer, one map, one memcpy. */
  async singleReadback(bytes: number): Promise<void> {
    const from = this.#pool.size - bytes;
    this.#submitCopy(this.#pool, from, this.#readback, 0, bytes);
    await this.#live.whenMapped(this.#readback, MapMode.READ, bytes);
    this.#other.set(new Uint8Array(this.#readback.getMappedRange(0, bytes)));
    this.#readback.unmap();
  }

  /** One `writeBuffer` a unit. @param slots where each lies, in units */
  async naiveUpload(slots: readonly number[]): Promise<void> {
    slots.forEach((slot, i) => {
      this.#live.device.queue.writeBuffer(
        this.#pool,
        slot * this.#unitBytes,
        this.#host,
        i * this.#unitBytes,
        this.#unitBytes,
      );
    });
    await this.#live.whenDone();
  }

  /** One copy, one map and one memcpy a unit, each after the other. */
  async naiveReadback(slots: readonly number[]): Promise<void> {
    for (const [i, slot] of slots.entries()) await this.readUnit(slot, i);
  }

  async readUnit(slot: number, index: number): Promise<Uint8Array> {
    this.#submitCopy(this.#pool, slot * this.#unitBytes, this.#unitReadback, 0, this.#unitBytes);
    await this.#live.whenMapped(this.#unitReadback, MapMode.READ, this.#unitBytes);
    const target = this.#other.subarray(index * this.#unitBytes, (index + 1) * this.#unitBytes);
    target.set(new Uint8Array(this.#unitReadback.getMappedRange()));
    this.#unitReadback.unmap();
    return target;
  }

  writeUnit(slot: number, bytes: Uint8Array<ArrayBuffer>): void {
    this.#live.device.queue.writeBuffer(this.#pool, slot * this.#unitBytes, bytes);
  }

  async settled(): Promise<void> {
    await this.#live.whenDone();
  }

  [Symbol.dispose](): void {
    for (const one of this.#buffers.splice(0)) one.destroy();
  }

  #submitCopy(from: GPUBuffer, fromAt: number, to: GPUBuffer, toAt: number, bytes: number): void {
    const encoder = this.#live.device.createCommandEncoder({ label: 'bench' });
    encoder.copyBufferToBuffer(from, fromAt, to, toAt, bytes);
    this.#live.device.queue.submit([encoder.finish()]);
  }
}
