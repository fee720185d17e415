/** What HBM and host memory do without tierkv: the best single transfer, and the naive one. */

import { hostDigest } from '../../../backends/digest/index.ts';
import { writeWords } from '../../../backends/webgpu/hostBytes.ts';
import type { LiveDevice } from '../../../backends/webgpu/index.ts';
import { PlainBuffers } from './plainBuffers.ts';

export class DeviceRuns implements Disposable {
  readonly buffers: PlainBuffers;

  /** @param host memory like that of the DDR tier, as long as all that a run moves */
  constructor(live: LiveDevice, host: Uint8Array, unitBytes: number) {
    this.buffers = new PlainBuffers(live, host, unitBytes);
  }

  /** One memcpy into one mapped buffer, one copy; fulfilled when the buffer is mapped again. */
  async singleUpload(bytes: number): Promise<void> {
    this.#submitUpload(bytes);
    await this.buffers.mapUpload();
  }

  /** `singleUpload`, and what arrived comes back in one copy to be digested by the host. */
  async singleVerifiedUpload(bytes: number): Promise<void> {
    const { pool, arrived } = this.buffers;
    this.#submitUpload(bytes);
    this.buffers.copy(pool, 0, arrived, 0, bytes);
    await Promise.all([
      this.buffers.mapUpload(),
      this.buffers.land(arrived, bytes, (landed) => void hostDigest(landed)),
    ]);
  }

  /** One copy into one mappable buffer, one map, one memcpy. */
  async singleReadback(bytes: number): Promise<void> {
    const { pool, readback, other } = this.buffers;
    this.buffers.copy(pool, pool.size - bytes, readback, 0, bytes);
    await this.buffers.land(readback, bytes, (landed) => other.set(landed));
  }

  /** One `writeBuffer` a unit. @param slots where each lies, in units */
  async naiveUpload(slots: readonly number[]): Promise<void> {
    const { live, pool, host, unitBytes } = this.buffers;
    slots.forEach((slot, i) => {
      const unit = host.subarray(i * unitBytes, (i + 1) * unitBytes);
      writeWords(live.device.queue, pool, unit, slot * unitBytes);
    });
    await this.buffers.done();
  }

  /** One copy, one map and one memcpy a unit, each after the other. */
  async naiveReadback(slots: readonly number[]): Promise<void> {
    for (const [i, slot] of slots.entries()) await this.readUnit(slot, i);
  }

  async readUnit(slot: number, index: number): Promise<Uint8Array> {
    const { pool, unitReadback, other, unitBytes } = this.buffers;
    this.buffers.copy(pool, slot * unitBytes, unitReadback, 0, unitBytes);
    const target = other.subarray(index * unitBytes, (index + 1) * unitBytes);
    await this.buffers.land(unitReadback, unitBytes, (landed) => target.set(landed));
    return target;
  }

  writeUnit(slot: number, bytes: Uint8Array): void {
    const { live, pool, unitBytes } = this.buffers;
    writeWords(live.device.queue, pool, bytes, slot * unitBytes);
  }

  async settled(): Promise<void> {
    await this.buffers.done();
  }

  [Symbol.dispose](): void {
    this.buffers[Symbol.dispose]();
  }

  #submitUpload(bytes: number): void {
    const { upload, host } = this.buffers;
    upload.set(host.subarray(0, bytes));
    this.buffers.sealUpload();
    this.buffers.copyUpload(bytes);
  }
}
