/**
 * Seals, fills and checks as work for a line: a kernel over the slots of many calls in one submit. An item
 * ends when the results of its batch have come back, which is also the fence behind which the slot may be
 * used again.
 *
 * The items of one dispatch run at the same time. Two fills of one slot, from two calls, must run one after
 * the other, so they never share a batch.
 */

import { refused } from '../../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../../runtime/tier/tierStore.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { KernelTable } from '../kernels/kernelTable.ts';
import type { SlotKernel, SlotKernels } from '../kernels/slotKernels.ts';
import type { Batch, BatchKind, Work } from '../pool/workLine.ts';
import type { ReadbackBuffers } from '../staging/mappedBuffers.ts';
import type { SlotLocation } from '../types.ts';

export interface KernelItem {
  readonly location: SlotLocation;
  readonly bytes: number;
  readonly seedLo: number;
  readonly seedHi: number;
  /** The kernel has run; its two words of results. */
  end(first: number, second: number): void;
  refuse(end: StoreResult): void;
}

export class KernelRuns implements BatchKind<KernelBatch> {
  readonly name: SlotKernel;
  readonly live: LiveDevice;
  readonly kernels: SlotKernels;
  readonly table: KernelTable;
  readonly results: ReadbackBuffers;

  /** @param results buffers as large as the results of a full table */
  constructor(live: LiveDevice, kernels: SlotKernels, name: SlotKernel, results: ReadbackBuffers) {
    this.name = name;
    this.live = live;
    this.kernels = kernels;
    this.table = kernels.table(name);
    this.results = results;
  }

  async open(): Promise<KernelBatch | undefined> {
    const buffer = await this.results.acquire();
    return buffer === undefined ? undefined : new KernelBatch(this, buffer);
  }

  run(item: KernelItem): Work<KernelBatch> {
    return { kind: this, addTo: (batch) => batch.add(item), refuse: (end) => item.refuse(end) };
  }
}

class KernelBatch implements Batch {
  readonly #runs: KernelRuns;
  readonly #buffer: GPUBuffer;
  readonly #items: KernelItem[] = [];
  /** Of the slots that this batch fills, all of one size: where they begin, as "slab:byte". */
  readonly #filled: Set<string> = new Set();
  #positions: Uint32Array = new Uint32Array(0);

  constructor(runs: KernelRuns, buffer: GPUBuffer) {
    this.#runs = runs;
    this.#buffer = buffer;
  }

  get full(): boolean {
    return this.#runs.table.full;
  }

  add(item: KernelItem): boolean {
    const { kernels, name, table } = this.#runs;
    if (name === 'fill' && !this.#fills(item)) return false;
    kernels.addSlot(table, item.location, item.bytes, item.seedLo, item.seedHi);
    this.#items.push(item);
    return true;
  }

  /** Notes the slot; false where the batch may fill some of its bytes already. */
  #fills({ location, bytes }: KernelItem): boolean {
    const place = `${location.slab}:${location.offsetBytes}`;
    const oneSize = this.#items.length === 0 || this.#items[0].bytes === bytes;
    if (!oneSize || this.#filled.has(place)) return false;
    this.#filled.add(place);
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#positions = this.#runs.table.encode(encoder, { resultsTo: this.#buffer });
  }

  async finish(errors: Promise<string>): Promise<void> {
    const { live, results } = this.#runs;
    let words = new Uint32Array(0);
    const [landed, error] = await Promise.all([
      results.land(this.#buffer, results.size.bytes, (range) => {
        words = new Uint32Array(range.slice(0));
      }),
      errors,
    ]);
    this.#items.forEach((item, index) => {
      const at = this.#positions[index];
      if (landed && error === '') item.end(words[at], words[at + 1]);
      else item.refuse(landed ? refused(error) : live.refusal());
    });
  }
}
