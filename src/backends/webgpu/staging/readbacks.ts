/**
 * Device to host: whole slots of `read`, slots that the host digests for `seal`, and boxes of `readBoxes`. A batch is one
 * mapped readback buffer and one submit that fills it; as a buffer lands, its bytes are handed to the items while the device
 * fills the next ones. An item larger than a buffer takes several.
 */

import { refused } from '../../../runtime/transfer/slotLedger.ts';
import type { StoreResult } from '../../../runtime/transfer/tierStore.ts';
import type { BoxPlan } from '../boxes/boxPlan.ts';
import { BYTES_TAKEN_AWAY } from '../device/hostBytes.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { Batch, BatchKind, Work } from '../pool/workLine.ts';
import type { BoxPath, SlotLocation } from '../types.ts';
import type { ReadbackBuffers } from './mappedBuffers.ts';
import type { Segment, StagingLayout } from './stagingLayout.ts';

export interface ReadbackItem {
  readonly plan: BoxPlan;
  readonly location: SlotLocation;
  readonly path: BoxPath;
  /** Takes bytes of the item, from its byte `from` on; the view is gone afterwards. False when they cannot be taken. */
  take(landed: Uint8Array, from: number): boolean;
  /** All bytes were taken (undefined), or why not. */
  end(failure: StoreResult | undefined): void;
}

const SEGMENTS_MAX = 4096;

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
    return new Readback(this, item);
  }
}

/** An item on its way. */
class Readback implements Work<ReadbackBatch> {
  readonly kind: BatchKind<ReadbackBatch>;
  readonly item: ReadbackItem;
  /** Bytes that have a place in buffers, and those of them that were not taken. */
  planned = 0;
  pending: number;
  taken = true;

  constructor(kind: BatchKind<ReadbackBatch>, item: ReadbackItem) {
    this.kind = kind;
    this.item = item;
    this.pending = item.plan.boxBytes;
  }

  addTo(batch: ReadbackBatch): boolean {
    return batch.add(this);
  }

  refuse(end: StoreResult): void {
    this.item.end(end);
  }
}

interface Part extends Segment {
  readonly readback: Readback;
  readonly from: number;
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
    return this.#readbacks.layout.full || this.#parts.length >= SEGMENTS_MAX;
  }

  /** True when all of the item has a place in buffers, false when this one has no more room for it. */
  add(readback: Readback): boolean {
    const { layout } = this.#readbacks;
    const { plan, location, path } = readback.item;
    while (readback.planned < plan.boxBytes) {
      const from = readback.planned;
      const segment = this.full ? undefined : layout.add(plan, location, from, path);
      if (segment === undefined) return false;
      this.#parts.push({ ...segment, readback, from });
      readback.planned += segment.bytes;
    }
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#used = this.#readbacks.layout.used;
    this.#readbacks.layout.encodeFromSlabs(encoder, this.#buffer);
  }

  async finish(): Promise<void> {
    const { live, buffers } = this.#readbacks;
    const landed = await buffers.land(this.#buffer, this.#used, (range) => {
      for (const { readback, from, at, bytes } of this.#parts) {
        if (readback.taken) readback.taken = readback.item.take(new Uint8Array(range, at, bytes), from);
      }
    });
    for (const { readback, bytes } of this.#parts) {
      readback.pending -= bytes;
      if (!landed) readback.refuse(live.lossOr('the pool is closed'));
      else if (readback.pending === 0) {
        readback.item.end(readback.taken ? undefined : refused(BYTES_TAKEN_AWAY));
      }
    }
  }
}
