/**
 * What a link between HBM and host memory has at its ends, without tierkv: a pool in device memory, staging that the host
 * fills and the device empties, staging the other way, and host memory as the DDR tier has it. Each is as long as all that
 * one run moves. Waits are the binding's own, which look at the device all the time, not those of waitGovernor.ts.
 */

import { BufferUsage, MapMode } from '../../../backends/webgpu/gpuConstants.ts';
import type { LiveDevice } from '../../../backends/webgpu/index.ts';

const BURST_SLICES = 4;
const BURST_SLICE_BYTES = 2 * 1024 * 1024;

export class PlainBuffers implements Disposable {
  readonly live: LiveDevice;
  readonly bytes: number;
  readonly unitBytes: number;
  /** What is uploaded, and where to read to. */
  readonly host: Uint8Array;
  readonly other: Uint8Array<ArrayBuffer>;
  /** Twice as long: in the naive way scattered units lie in it as they do in a tier. */
  readonly pool: GPUBuffer;
  readonly readback: GPUBuffer;
  /** Where uploads come back to be verified. */
  readonly arrived: GPUBuffer;
  readonly unitReadback: GPUBuffer;
  readonly #upload: GPUBuffer;
  /** Staging that the caches hold. */
  readonly #burst: readonly GPUBuffer[];
  readonly #buffers: GPUBuffer[] = [];
  #mapped: Uint8Array<ArrayBuffer> | undefined;

  /** @param host memory like that of the DDR tier, `bytes` long */
  constructor(live: LiveDevice, host: Uint8Array, unitBytes: number) {
    this.live = live;
    this.host = host;
    this.bytes = host.byteLength;
    this.unitBytes = unitBytes;
    this.other = new Uint8Array(host.byteLength).fill(1);
    const { COPY_DST, COPY_SRC, MAP_READ, MAP_WRITE, STORAGE } = BufferUsage;
    const buffer = (label: string, size: number, usage: GPUBufferUsageFlags): GPUBuffer => {
      const made = live.device.createBuffer({ label: `bench.${label}`, size, usage });
      this.#buffers.push(made);
      return made;
    };
    this.pool = buffer('pool', 2 * this.bytes, STORAGE | COPY_SRC | COPY_DST);
    this.#upload = buffer('upload', this.bytes, MAP_WRITE | COPY_SRC);
    const slice = Math.min(BURST_SLICE_BYTES, this.bytes);
    this.#burst = Array.from({ length: BURST_SLICES }, (_, i) =>
      buffer(`burst${i}`, slice, MAP_WRITE | COPY_SRC),
    );
    this.readback = buffer('readback', this.bytes, MAP_READ | COPY_DST);
    this.arrived = buffer('arrived', this.bytes, MAP_READ | COPY_DST);
    this.unitReadback = buffer('unitReadback', unitBytes, MAP_READ | COPY_DST);
  }

  /** The staging for uploads belongs to the host from now on, until `submitUpload`. */
  async mapUpload(): Promise<void> {
    if (this.#mapped !== undefined) return;
    await this.#upload.mapAsync(MapMode.WRITE, 0, this.bytes);
    this.#mapped = new Uint8Array(this.#upload.getMappedRange());
  }

  /** The staging for uploads, while it is mapped. */
  get upload(): Uint8Array<ArrayBuffer> {
    return this.#mapped!;
  }

  /** The device has the staging from now on; `copyUpload` copies what is in it. */
  sealUpload(): void {
    this.#mapped = undefined;
    this.#upload.unmap();
  }

  copyUpload(bytes: number): void {
    this.copy(this.#upload, 0, this.pool, 0, bytes);
  }

  /** How much a burst is. */
  get burstBytes(): number {
    return this.#burst.length * this.#burst[0].size;
  }

  /** Device memory, copied to staging; mapped until the caller unmaps it. */
  async fromPool(staging: GPUBuffer, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    this.copy(this.pool, 0, staging, 0, bytes);
    await staging.mapAsync(MapMode.READ, 0, bytes);
    return new Uint8Array(staging.getMappedRange(0, bytes));
  }

  /** The host fills a few small buffers with what is to lie in [at, end) of the pool. @returns where their bytes end there */
  async fillBurst(at: number, end: number): Promise<number> {
    let to = at;
    for (const slice of this.#burst) {
      const bytes = Math.min(slice.size, end - to);
      if (bytes === 0) break;
      await slice.mapAsync(MapMode.WRITE, 0, slice.size);
      new Uint8Array(slice.getMappedRange()).set(this.host.subarray(to, to + bytes));
      slice.unmap();
      to += bytes;
    }
    return to;
  }

  /** The device copies what `fillBurst` filled to [at, to) of the pool, and from there to the first pages of `back`, if given. */
  copyBurst(at: number, to: number, back?: GPUBuffer): void {
    const encoder = this.live.device.createCommandEncoder({ label: 'bench' });
    for (const [i, slice] of this.#burst.entries()) {
      const from = at + i * slice.size;
      const bytes = Math.min(slice.size, to - from);
      if (bytes <= 0) break;
      encoder.copyBufferToBuffer(slice, 0, this.pool, from, bytes);
      if (back !== undefined) encoder.copyBufferToBuffer(this.pool, from, back, from - at, bytes);
    }
    this.live.device.queue.submit([encoder.finish()]);
  }

  /** All work submitted so far has ended. */
  async done(): Promise<void> {
    await this.live.device.queue.onSubmittedWorkDone();
  }

  copy(from: GPUBuffer, fromAt: number, to: GPUBuffer, toAt: number, bytes: number): void {
    const encoder = this.live.device.createCommandEncoder({ label: 'bench' });
    encoder.copyBufferToBuffer(from, fromAt, to, toAt, bytes);
    this.live.device.queue.submit([encoder.finish()]);
  }

  /** Maps the first bytes of a staging buffer that the device has filled, and lets `use` see them. */
  async land(
    staging: GPUBuffer,
    bytes: number,
    use: (landed: Uint8Array<ArrayBuffer>) => void,
  ): Promise<void> {
    await staging.mapAsync(MapMode.READ, 0, bytes);
    use(new Uint8Array(staging.getMappedRange(0, bytes)));
    staging.unmap();
  }

  [Symbol.dispose](): void {
    for (const one of this.#buffers.splice(0)) one.destroy();
  }
}
