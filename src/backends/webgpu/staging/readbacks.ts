/**
 * Device to host: whole slots of `read`, slots that the host digests for `seal`, and boxes of `readBoxes`. A
 * batch is one mapped readback buffer and one submit that fills it; as a buffer lands, its bytes are handed
 * to the items while the device fills the next ones. An item larger than a buffer takes several.
 */

import { refused } from '../../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../../runtime/tier/tierStore.ts';
import type { BoxPlan } from '../boxes/boxPlan.ts';
import { BYTES_TAKEN_AWAY } from '../device/hostBytes.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { Batch, BatchKind, Work } from '../pool/workLine.ts';
import type { BoxPath, SlotLocation } from '../types.ts';
import type { ReadbackBuffers } from './mappedBuffers.ts';
import type { StagingLayout } from './stagingLayout.ts';

export interface ReadbackItem {
  readonly plan: BoxPlan;
  readonly location: SlotLocation;
  readonly path: BoxPath;
  /** Takes bytes from the item's byte `from` on; the view is gone afterwards. False when they cannot be. */
  take(landed: Uint8Array, from: number): boolean;
  /** All bytes were taken (undefined), or why not. */
  end(failure: StoreResult | undefined): void;
}

export class Readbacks implements BatchKind<ReadbackBatch> {
  readonly name = 'readback';
  readonly live: LiveDevice;
  readonly buffers: ReadbackBuffers;
  readonly layout: StagingLayout;

  constructor(live: LiveDevice, buffers: ReadbackBuffers, layout: StagingLayout) {
    this.live = live;
    this.buffers = buffers;
    this.layout = layout;
  }

  async open(): Promise<ReadbackBatch | undefined> {
    const buffer = await this.buffers.acquire();
    return buffer === undefined ? undefined : new ReadbackBatch(this, buffer);
  }

  readback(item: ReadbackItem): Work<ReadbackBatch> {
    const readback: Readback = { item, planned: 0, pending: item.plan.boxBytes, taken: true };
    return { kind: this, addTo: (batch) => batch.add(readback), refuse: (end) => item.end(end) };
  }
}

interface Readback {
  readonly item: ReadbackItem;
  /** Bytes that have room in buffers. */
  planned: number;
  /** Bytes that were not handed over. */
  pending: number;
  taken: boolean;
}

interface Part {
  readonly readback: Readback;
  readonly from: number;
  readonly at: number;
  readonly bytes: number;
}

class ReadbackBatch implements Batch {
  readonly #readbacks: Readbacks;
  readonly #buffer: GPUBuffer;
  readonly #parts: Part[] = [];
  #used = 0;

  constructor(readbacks: Readbacks, buffer: GPUBuffer) {
    this.#readbacks = readbacks;
    this.#buffer = buffer;
  }

  get full(): boolean {
    return this.#readbacks.layout.full;
  }

  /** True when all of the item has room in buffers, false when this one has no more room for it. */
  add(readback: Readback): boolean {
    const { layout } = this.#readbacks;
    const { plan, location, path } = readback.item;
    while (readback.planned < plan.boxBytes) {
      const from = readback.planned;
      const part = this.full ? undefined : layout.add(plan, location, from, path);
      if (part === undefined) return false;
      this.#parts.push({ readback, from, at: part.at, bytes: part.bytes });
      readback.planned += part.bytes;
    }
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#used = this.#readbacks.layout.used;
    this.#readbacks.layout.encodeFromSlabs(encoder, this.#buffer);
  }

  async finish(errors: Promise<string>): Promise<void> {
    const { live, buffers } = this.#readbacks;
    let failure: StoreResult | undefined;
    const take = (range: ArrayBuffer, error: string): void => {
      if (error !== '') failure = refused(error);
      for (const { readback, from, at, bytes } of failure === undefined ? this.#parts : []) {
        if (readback.taken) readback.taken = readback.item.take(new Uint8Array(range, at, bytes), from);
      }
    };
    if (!(await buffers.land(this.#buffer, this.#used, take, errors))) failure = live.refusal();
    for (const { readback, bytes } of this.#parts) {
      const { item, taken } = readback;
      readback.pending -= bytes;
      if (failure !== undefined) item.end(failure);
      else if (readback.pending === 0) item.end(taken ? undefined : refused(BYTES_TAKEN_AWAY));
    }
  }
}
