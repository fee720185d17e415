/**
 * Host to device. Items are packed into batches of an upload path; a batch that is full, or that no further call fills, is
 * one submit: what brings its bytes into the slabs, and the check of what arrived. So the host fills one batch while the
 * device empties others, and a call larger than all of them streams through.
 *
 *     items  | a | b | c | d          | e |
 *     batch  | a | b | c | d .. | .. d | e |      d has arrived when the batch with its end has
 */

import type { Digest } from '../../runtime/digest.ts';
import { corrupt, loaded, refused, type SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import type { StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import type { ArrivalCheck, ArrivalChecks, Arriving } from './arrivals.ts';
import { bytesFault } from './hostBytes.ts';
import { giveUpAfter, goneFor, lossOf, type PoolContext } from './poolContext.ts';
import { Pump } from './pump.ts';
import type { StoreCall } from './storeCall.ts';
import type { UploadBatch, UploadPath } from './uploadPath.ts';

export type WriteCall = StoreCall<StoreItem, StoreResult>;

interface Upload {
  readonly batch: UploadBatch;
  readonly check: ArrivalCheck;
  /** Whoever waits for it, should the device be lost. */
  readonly calls: Set<WriteCall>;
}

/** An item on its way: its bytes count as there once what arrived is what its digest says. */
class Arrival implements Arriving {
  readonly bytes: number;
  bytesLeft: number;
  lo: number = 0;
  hi: number = 0;
  readonly #ledger: SlotLedger;
  readonly #call: WriteCall;
  readonly #index: number;

  constructor(ledger: SlotLedger, call: WriteCall, index: number) {
    this.#ledger = ledger;
    this.#call = call;
    this.#index = index;
    this.bytes = call.items[index]!.bytes.byteLength;
    this.bytesLeft = this.bytes;
  }

  arrived(found: Digest | undefined): void {
    const item = this.#call.items[this.#index]!;
    const { slot, digest } = item;
    if (found !== undefined && (found.lo !== digest.lo || found.hi !== digest.hi)) {
      this.#call.settle(this.#index, corrupt(`slot ${slot} received other bytes than its digest says`));
      return;
    }
    this.#ledger.fill(item);
    this.#call.settle(this.#index, loaded);
  }
}

export class Uploads {
  readonly #pool: PoolContext;
  readonly #path: UploadPath;
  readonly #checks: ArrivalChecks;
  readonly #pump: Pump<WriteCall>;
  #open: Upload | undefined;

  constructor(pool: PoolContext, path: UploadPath, checks: ArrivalChecks) {
    this.#pool = pool;
    this.#path = path;
    this.#checks = checks;
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
        const arriving = new Arrival(this.#pool.ledger, call, index);
        for (let done = 0; done < item.bytes.byteLength; ) {
          const upload = this.#open ?? (await this.#begin());
          if (upload === undefined) {
            call.settle(index, goneFor(live));
            break;
          }
          upload.calls.add(call);
          done += this.#pack(upload, item, arriving, done);
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
    const check = await this.#checks.begin();
    const batch = await this.#path.begin();
    if (batch === undefined || check === undefined) return undefined;
    this.#open = { batch, check, calls: new Set() };
    return this.#open;
  }

  /** Packs as much of the item, from byte `from` on, as fits; returns how much that was. */
  #pack({ batch, check }: Upload, item: StoreItem, arriving: Arriving, from: number): number {
    const { slabs } = this.#pool;
    const { slot, sizeClass, bytes } = item;
    const at = batch.used;
    const length = Math.min(bytes.byteLength - from, batch.capacity - at);
    const slab = slabs.slabOf(slot, sizeClass);
    const offset = slabs.offsetOf(slot, sizeClass) + from;
    batch.put(length === bytes.byteLength ? bytes : bytes.subarray(from, from + length), slab, offset);
    check.add(arriving, from, length, slab, offset, at);
    if (batch.used === batch.capacity || check.full) this.#flush();
    return length;
  }

  /** Submits what is packed. */
  #flush(): void {
    const upload = this.#open;
    if (upload === undefined) return;
    this.#open = undefined;
    const { live, label } = this.#pool;
    const { batch, check } = upload;
    try {
      const encoder = live.device.createCommandEncoder({ label: `${label}.upload` });
      batch.encode(encoder);
      check.encode(encoder, batch.copies);
      live.device.queue.submit([encoder.finish()]);
    } catch (error) {
      giveUpAfter(live, 'an upload', error);
    }
    void this.#finish(upload);
  }

  async #finish({ batch, check, calls }: Upload): Promise<void> {
    if (await check.finish(batch.done())) return;
    for (const call of calls) call.settleRest(goneFor(this.#pool.live));
  }
}
