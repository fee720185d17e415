/**
 * Host to device. Items are packed into staging buffers of the upload ring; a staging buffer that is full, or that no
 * further call fills, is one submit: its copies, the digest kernel over every slot that it completes, and the results'
 * way back. So the host fills one buffer while the device empties others, and a batch larger than the ring streams
 * through it.
 *
 *     items    | a | b | c | d          | e |
 *     staging  | a | b | c | d .. | .. d | e |      d is verified in the submit that brings its end
 */

import { corrupt, loaded, refused } from '../../runtime/transfer/slotLedger.ts';
import type { StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import { CopyRuns } from './copyRuns.ts';
import { bytesFault } from './hostBytes.ts';
import type { PlaceBatch } from './placeBatches.ts';
import { giveUpAfter, goneFor, lossOf, type PoolContext } from './poolContext.ts';
import { Pump } from './pump.ts';
import type { StoreCall } from './storeCall.ts';
import type { UploadRing } from './uploadRing.ts';

export type WriteCall = StoreCall<StoreItem, StoreResult>;

/** One staging buffer on its way. */
interface Upload {
  readonly staging: GPUBuffer;
  readonly bytes: Uint8Array;
  used: number;
  readonly copies: CopyRuns;
  /** The slots completed, in the order of `calls` and `indexes`; undefined where arrivals are not verified. */
  readonly batch: PlaceBatch | undefined;
  readonly calls: WriteCall[];
  readonly indexes: number[];
}

export class Uploads {
  readonly #pool: PoolContext;
  readonly #ring: UploadRing;
  readonly #verify: boolean;
  readonly #pump: Pump<WriteCall>;
  #open: Upload | undefined;

  constructor(pool: PoolContext, ring: UploadRing, verify: boolean) {
    this.#pool = pool;
    this.#ring = ring;
    this.#verify = verify;
    this.#pump = new Pump(
      (call) => this.#work(call),
      () => this.#flush(),
    );
  }

  /** The call's turn lasts until its bytes are verified, so that nobody reads them before. */
  push(call: WriteCall): void {
    void call.ended.then(() => this.#pool.turns.leave(call.turn));
    this.#pump.push(call);
  }

  async #work(call: WriteCall): Promise<void> {
    const { live } = this.#pool;
    try {
      if (call.turn.mustWait) {
        this.#flush();
        await call.turn.wait();
      }
      for (let index = 0; index < call.items.length; index++) {
        const item = call.items[index]!;
        const refusal = this.#refusal(item);
        if (refusal !== undefined) {
          call.settle(index, refusal);
          continue;
        }
        this.#pool.ledger.take(item);
        for (let done = 0; done < item.bytes.byteLength; ) {
          const upload = this.#open ?? (await this.#begin());
          if (upload === undefined) {
            call.settle(index, goneFor(live));
            break;
          }
          done += this.#pack(upload, call, index, done);
        }
      }
    } catch (error) {
      call.settleRest(giveUpAfter(live, 'an upload', error));
    }
  }

  #refusal(item: StoreItem): StoreResult | undefined {
    const { live, ledger, slabs } = this.#pool;
    const refusal = lossOf(live) ?? ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    const fault = bytesFault(item.bytes, slabs.shape.slotBytes[item.sizeClass]!);
    return fault === '' ? undefined : refused(fault);
  }

  async #begin(): Promise<Upload | undefined> {
    const batch = this.#verify ? await this.#pool.batches.acquire() : undefined;
    const staging = await this.#ring.acquire();
    if (staging === undefined || (this.#verify && batch === undefined)) return undefined;
    const bytes = this.#ring.bytes(staging);
    const copies = new CopyRuns();
    this.#open = { staging, bytes, used: 0, copies, batch, calls: [], indexes: [] };
    return this.#open;
  }

  /** Packs as much of the item, from byte `from` on, as fits; returns how much that was. */
  #pack(upload: Upload, call: WriteCall, index: number, from: number): number {
    const { slabs } = this.#pool;
    const item = call.items[index]!;
    const { slot, sizeClass, bytes } = item;
    const length = Math.min(bytes.byteLength - from, upload.bytes.byteLength - upload.used);
    const slab = slabs.slabOf(slot, sizeClass);
    const offset = slabs.offsetOf(slot, sizeClass);
    upload.bytes.set(length === bytes.byteLength ? bytes : bytes.subarray(from, from + length), upload.used);
    upload.copies.add(slab, offset + from, upload.used, length);
    upload.used += length;
    if (from + length === bytes.byteLength) {
      upload.batch?.places.add(slab, offset, bytes.byteLength, 0, 0);
      upload.calls.push(call);
      upload.indexes.push(index);
    }
    if (upload.used === upload.bytes.byteLength || upload.batch?.places.full) this.#flush();
    return length;
  }

  /** Submits what is packed. */
  #flush(): void {
    const upload = this.#open;
    if (upload === undefined) return;
    this.#open = undefined;
    const { live, slabs, kernels, label } = this.#pool;
    let resultBytes = 0;
    try {
      const encoder = live.device.createCommandEncoder({ label: `${label}.upload` });
      this.#ring.seal(upload.staging);
      upload.copies.encodeToSlabs(encoder, upload.staging, slabs.buffers);
      if (upload.batch !== undefined && upload.calls.length > 0) {
        resultBytes = kernels.encode(encoder, 'digest', upload.batch.places, upload.batch.readback);
      }
      live.device.queue.submit([encoder.finish()]);
    } catch (error) {
      giveUpAfter(live, 'an upload', error);
    }
    void this.#finish(upload, this.#ring.recycle(upload.staging), resultBytes);
  }

  async #finish(upload: Upload, copied: Promise<boolean>, resultBytes: number): Promise<void> {
    const { batch, calls, indexes } = upload;
    const settle = (endOf: (item: StoreItem, i: number) => StoreResult): void => {
      calls.forEach((call, i) => {
        call.settle(indexes[i]!, endOf(call.items[indexes[i]!]!, i));
      });
    };
    const arrived =
      batch === undefined
        ? await copied
        : await this.#pool.batches.land(batch, resultBytes, (results) => {
            settle((item, i) => {
              const row = 2 * batch.places.row[i]!;
              return this.#verified(item, results[row]!, results[row + 1]!);
            });
          });
    if (!arrived) settle(() => goneFor(this.#pool.live));
    else if (batch === undefined) settle((item) => this.#arrived(item));
  }

  #arrived(item: StoreItem): StoreResult {
    this.#pool.ledger.fill(item);
    return loaded;
  }

  #verified(item: StoreItem, lo: number, hi: number): StoreResult {
    const { slot, digest } = item;
    if (lo === digest.lo && hi === digest.hi) return this.#arrived(item);
    return corrupt(`slot ${slot} received other bytes than its digest says`);
  }
}
