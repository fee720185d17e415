/**
 * Host to device: whole slots of `write` and boxes of `writeBoxes`. Items are copied into a mapped upload
 * buffer. A batch is one such buffer and one submit that brings its bytes into the slabs. The host fills one
 * buffer while the device empties others, and an item larger than a buffer takes several.
 */

import { loaded, refused } from '../../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../../runtime/tier/tierStore.ts';
import type { BoxPlan } from '../boxes/boxPlan.ts';
import { BYTES_TAKEN_AWAY } from '../device/hostBytes.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { Batch, BatchKind, Work } from '../pool/workLine.ts';
import type { BoxPath, SlotLocation } from '../types.ts';
import type { UploadBuffers } from './mappedBuffers.ts';
import type { StagingLayout } from './stagingLayout.ts';

export interface UploadItem {
  readonly plan: BoxPlan;
  readonly location: SlotLocation;
  readonly path: BoxPath;
  readonly bytes: Uint8Array;
  /** All bytes are on their way: whatever is submitted from now on finds them in the slot. */
  sent?(): void;
  /** All bytes lie in the slot, or not all ever will. */
  end(result: StoreResult): void;
}

export class Uploads implements BatchKind<UploadBatch> {
  readonly name = 'upload';
  readonly live: LiveDevice;
  readonly buffers: UploadBuffers;
  readonly layout: StagingLayout;

  constructor(live: LiveDevice, buffers: UploadBuffers, layout: StagingLayout) {
    this.live = live;
    this.buffers = buffers;
    this.layout = layout;
  }

  async open(): Promise<UploadBatch | undefined> {
    const buffer = await this.buffers.acquire();
    return buffer === undefined ? undefined : new UploadBatch(this, buffer);
  }

  upload(item: UploadItem): Work<UploadBatch> {
    const upload: Upload = { item, copied: 0, pending: item.plan.boxBytes };
    return { kind: this, addTo: (batch) => batch.add(upload), refuse: (end) => item.end(end) };
  }
}

interface Upload {
  readonly item: UploadItem;
  /** Bytes that were copied into mapped buffers. */
  copied: number;
  /** Bytes that are not known to have arrived. */
  pending: number;
}

class UploadBatch implements Batch {
  readonly #uploads: Uploads;
  readonly #buffer: GPUBuffer;
  readonly #bytes: Uint8Array;
  readonly #parts: { readonly upload: Upload; readonly bytes: number }[] = [];
  /** Items of which the last bytes ride here. */
  readonly #complete: UploadItem[] = [];
  /** Items whose memory was taken away. They end with this batch, which is behind all of their bytes. */
  readonly #cut: UploadItem[] = [];

  constructor(uploads: Uploads, buffer: GPUBuffer) {
    this.#uploads = uploads;
    this.#buffer = buffer;
    this.#bytes = uploads.buffers.bytesOf(buffer);
  }

  get full(): boolean {
    return this.#uploads.layout.full;
  }

  /** True when all of the item is in buffers, false when this one has no more room for it. */
  add(upload: Upload): boolean {
    const { item } = upload;
    const { plan, location, path, bytes } = item;
    while (upload.copied < plan.boxBytes) {
      if (bytes.byteLength !== plan.boxBytes) {
        this.#cut.push(item);
        return true;
      }
      const from = upload.copied;
      const part = this.full ? undefined : this.#uploads.layout.add(plan, location, from, path);
      if (part === undefined) return false;
      this.#bytes.set(bytes.subarray(from, from + part.bytes), part.at);
      this.#parts.push({ upload, bytes: part.bytes });
      upload.copied += part.bytes;
    }
    this.#complete.push(item);
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#buffer.unmap();
    this.#uploads.layout.encodeToSlabs(encoder, this.#buffer);
  }

  async finish(errors: Promise<string>): Promise<void> {
    const { live, buffers } = this.#uploads;
    for (const item of this.#complete) item.sent?.();
    const [mapped, error] = await Promise.all([buffers.recycle(this.#buffer), errors]);
    const failure = mapped ? (error === '' ? undefined : refused(error)) : live.refusal();
    for (const { upload, bytes } of this.#parts) {
      upload.pending -= bytes;
      if (failure !== undefined || upload.pending === 0) upload.item.end(failure ?? loaded);
    }
    for (const item of this.#cut) item.end(failure ?? refused(BYTES_TAKEN_AWAY));
  }
}
