/**
 * Host to device: whole slots of `write` and boxes of `writeBoxes`. Items are copied into a mapped upload buffer; a batch is
 * one such buffer, one submit that brings its bytes into the slabs, and the check of the whole slots that it completes. The
 * host fills one buffer while the device empties others, and an item larger than a buffer takes several.
 *
 * An item ends when the last buffer with bytes of it has come back, and it was compared with its digest where it has one.
 */

import type { Digest } from '../../../runtime/digest.ts';
import { corrupt, loaded, refused } from '../../../runtime/transfer/slotLedger.ts';
import type { StoreResult } from '../../../runtime/transfer/tierStore.ts';
import type { BoxPlan } from '../boxes/boxPlan.ts';
import { BYTES_TAKEN_AWAY } from '../device/hostBytes.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { Batch, BatchKind, Work } from '../pool/workLine.ts';
import type { BoxPath, SlotLocation } from '../types.ts';
import type { ArrivalCheck, ArrivalChecks, ArrivingSlot } from '../verify/arrivalCheck.ts';
import type { UploadBuffers } from './mappedBuffers.ts';
import type { StagingLayout } from './stagingLayout.ts';

export interface UploadItem {
  readonly plan: BoxPlan;
  readonly location: SlotLocation;
  readonly path: BoxPath;
  readonly bytes: Uint8Array;
  /** What the bytes must add up to on the device. Undefined: nobody looks. */
  readonly digest: Digest | undefined;
  end(result: StoreResult): void;
}

/** So many parts of items at most ride in one buffer. */
const SEGMENTS_MAX = 4096;

export class Uploads implements BatchKind<UploadBatch> {
  readonly name = 'upload';
  readonly live: LiveDevice;
  readonly buffers: UploadBuffers;
  readonly layout: StagingLayout;
  readonly #checks: ArrivalChecks | undefined;

  constructor(
    live: LiveDevice,
    buffers: UploadBuffers,
    layout: StagingLayout,
    checks: ArrivalChecks | undefined,
  ) {
    this.live = live;
    this.buffers = buffers;
    this.layout = layout;
    this.#checks = checks;
  }

  async open(): Promise<UploadBatch | undefined> {
    const buffer = await this.buffers.acquire();
    const check = await this.#checks?.open();
    const gone = buffer === undefined || (this.#checks !== undefined && check === undefined);
    return gone ? undefined : new UploadBatch(this, buffer, check);
  }

  upload(item: UploadItem): Work<UploadBatch> {
    return new Upload(this, item);
  }
}

/** An item on its way. */
class Upload implements Work<UploadBatch>, ArrivingSlot {
  readonly kind: BatchKind<UploadBatch>;
  readonly item: UploadItem;
  /** Bytes that were copied into mapped buffers, and those of them that are not known to have arrived. */
  copied = 0;
  pending: number;
  /** The sum of what was found on the device. */
  lo = 0;
  hi = 0;

  constructor(kind: BatchKind<UploadBatch>, item: UploadItem) {
    this.kind = kind;
    this.item = item;
    this.pending = item.plan.boxBytes;
  }

  get location(): SlotLocation {
    return this.item.location;
  }

  get slotBytes(): number {
    return this.item.plan.boxBytes;
  }

  addTo(batch: UploadBatch): boolean {
    return batch.add(this);
  }

  refuse(end: StoreResult): void {
    this.item.end(end);
  }

  /** `bytes` of the item are in place, and were looked at where that is to be. */
  arrived(bytes: number): void {
    this.pending -= bytes;
    if (this.pending > 0) return;
    const { digest } = this.item;
    const right = digest === undefined || (digest.lo === this.lo && digest.hi === this.hi);
    this.item.end(right ? loaded : corrupt('the device received other bytes than the digest says'));
  }
}

class UploadBatch implements Batch {
  readonly #uploads: Uploads;
  readonly #buffer: GPUBuffer;
  readonly #check: ArrivalCheck | undefined;
  readonly #parts: { readonly upload: Upload; readonly bytes: number }[] = [];
  /** Items whose memory was taken away. They end with this batch, which is behind all of their bytes. */
  readonly #cut: Upload[] = [];
  readonly #bytes: Uint8Array;

  constructor(uploads: Uploads, buffer: GPUBuffer, check: ArrivalCheck | undefined) {
    this.#uploads = uploads;
    this.#buffer = buffer;
    this.#check = check;
    this.#bytes = uploads.buffers.bytesOf(buffer);
  }

  get full(): boolean {
    const { layout } = this.#uploads;
    return layout.full || this.#parts.length >= SEGMENTS_MAX || this.#check?.full === true;
  }

  /** True when all of the item is in buffers, false when this one has no more room for it. */
  add(upload: Upload): boolean {
    const { plan, location, path, bytes, digest } = upload.item;
    while (upload.copied < plan.boxBytes) {
      if (bytes.byteLength !== plan.boxBytes) {
        this.#cut.push(upload);
        return true;
      }
      const from = upload.copied;
      const segment = this.full ? undefined : this.#uploads.layout.add(plan, location, from, path);
      if (segment === undefined) return false;
      const whole = segment.bytes === bytes.byteLength;
      this.#bytes.set(whole ? bytes : bytes.subarray(from, from + segment.bytes), segment.at);
      if (digest !== undefined) this.#check?.add(upload, from, segment.at, segment.bytes);
      this.#parts.push({ upload, bytes: segment.bytes });
      upload.copied += segment.bytes;
    }
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#buffer.unmap();
    this.#uploads.layout.encodeToSlabs(encoder, this.#buffer);
    this.#check?.encode(encoder);
  }

  async finish(): Promise<void> {
    const { live, buffers } = this.#uploads;
    const [copied, checked] = await Promise.all([buffers.recycle(this.#buffer), this.#check?.land() ?? true]);
    const done = copied && checked;
    for (const { upload, bytes } of this.#parts) {
      if (done) upload.arrived(bytes);
      else upload.refuse(live.lossOr('the pool is closed'));
    }
    for (const upload of this.#cut) upload.refuse(live.loss ?? refused(BYTES_TAKEN_AWAY));
  }
}
