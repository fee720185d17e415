/**
 * Device memory without tierkv: a pool, a mapped buffer for the way in and one for the way out, each as long
 * as all that one run moves. Between two calls the buffer for the way in is mapped, and that for the way out
 * from `copyOut` to `useOut`.
 */

import { hostDigest } from '../../../backends/digest/index.ts';
import { BufferUsage, MapMode } from '../../../backends/webgpu/device/gpuConstants.ts';

export class PlainDevice implements Disposable {
  readonly #device: GPUDevice;
  readonly #pool: GPUBuffer;
  readonly #in: GPUBuffer;
  readonly #out: GPUBuffer;
  #mappedIn: Uint8Array<ArrayBuffer>;

  constructor(device: GPUDevice, bytes: number) {
    this.#device = device;
    const { COPY_DST, COPY_SRC, MAP_READ, MAP_WRITE, STORAGE } = BufferUsage;
    const buffer = (usage: GPUBufferUsageFlags, mappedAtCreation = false): GPUBuffer =>
      device.createBuffer({ label: 'bench', size: bytes, usage, mappedAtCreation });
    this.#pool = buffer(STORAGE | COPY_SRC | COPY_DST);
    this.#in = buffer(MAP_WRITE | COPY_SRC, true);
    this.#out = buffer(MAP_READ | COPY_DST);
    this.#mappedIn = new Uint8Array(this.#in.getMappedRange());
  }

  memcpyIn(source: Uint8Array): void {
    this.#mappedIn.set(source);
  }

  async copyIn(bytes: number): Promise<void> {
    this.#in.unmap();
    this.#copy(this.#in, this.#pool, bytes);
    await this.#in.mapAsync(MapMode.WRITE);
    this.#mappedIn = new Uint8Array(this.#in.getMappedRange());
  }

  async copyOut(bytes: number): Promise<void> {
    this.#copy(this.#pool, this.#out, bytes);
    await this.#out.mapAsync(MapMode.READ, 0, bytes);
  }

  /** What `copyOut` has copied. */
  useOut(bytes: number, use: (landed: Uint8Array<ArrayBuffer>) => void): void {
    use(new Uint8Array(this.#out.getMappedRange(0, bytes)));
    this.#out.unmap();
  }

  /** One upload alone: memcpy, copy, wait; verified, what arrived is copied back and digested. */
  async upload(source: Uint8Array, verified: boolean): Promise<void> {
    const { byteLength } = source;
    this.memcpyIn(source);
    await Promise.all([this.copyIn(byteLength), verified && this.download(byteLength, hostDigest)]);
  }

  /** One readback alone: copy, wait, use. */
  async download(bytes: number, use: (landed: Uint8Array<ArrayBuffer>) => void): Promise<void> {
    await this.copyOut(bytes);
    this.useOut(bytes, use);
  }

  [Symbol.dispose](): void {
    for (const buffer of [this.#pool, this.#in, this.#out]) buffer.destroy();
  }

  #copy(from: GPUBuffer, to: GPUBuffer, bytes: number): void {
    const encoder = this.#device.createCommandEncoder({ label: 'bench' });
    encoder.copyBufferToBuffer(from, 0, to, 0, bytes);
    this.#device.queue.submit([encoder.finish()]);
  }
}
