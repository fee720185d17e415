/**
 * Arrivals checked by the digest kernel. A slot that takes several uploads is digested with the last of them, whole: the
 * queue keeps that behind the others.
 */

import type { KernelTable } from '../kernels/kernelTable.ts';
import type { SlotKernels } from '../kernels/slotKernels.ts';
import type { ReadbackBuffers } from '../staging/mappedBuffers.ts';
import type { ArrivalCheck, ArrivalChecks, ArrivingSlot } from './arrivalCheck.ts';

export class KernelChecks implements ArrivalChecks {
  readonly kernels: SlotKernels;
  readonly table: KernelTable;
  readonly results: ReadbackBuffers;

  /** @param results buffers as large as the results of a full table */
  constructor(kernels: SlotKernels, results: ReadbackBuffers) {
    this.kernels = kernels;
    this.table = kernels.table('digest');
    this.results = results;
  }

  async open(): Promise<ArrivalCheck | undefined> {
    const buffer = await this.results.acquire();
    return buffer === undefined ? undefined : new KernelCheck(this, buffer);
  }

  async destroy(): Promise<void> {
    this.table.destroy();
  }
}

class KernelCheck implements ArrivalCheck {
  readonly #checks: KernelChecks;
  readonly #buffer: GPUBuffer;
  readonly #slots: ArrivingSlot[] = [];
  #positions: Uint32Array = new Uint32Array(0);

  constructor(checks: KernelChecks, buffer: GPUBuffer) {
    this.#checks = checks;
    this.#buffer = buffer;
  }

  get full(): boolean {
    return this.#checks.table.full;
  }

  add(slot: ArrivingSlot, from: number, _at: number, bytes: number): void {
    if (from + bytes < slot.slotBytes) return;
    this.#checks.kernels.addSlot(this.#checks.table, slot.location, slot.slotBytes);
    this.#slots.push(slot);
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#positions = this.#checks.table.encode(encoder, { resultsTo: this.#buffer });
  }

  land(): Promise<boolean> {
    return this.#checks.results.land(this.#buffer, this.#checks.results.size.bytes, (range) => {
      const results = new Uint32Array(range);
      this.#slots.forEach((slot, index) => {
        slot.lo = results[this.#positions[index]];
        slot.hi = results[this.#positions[index] + 1];
      });
    });
  }
}
