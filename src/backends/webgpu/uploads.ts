/**
 * Host to device. Items are packed into batches of an upload path; a batch that is full, or that no further call fills, is
 * one submit: what brings its bytes into the slabs, and the check of what arrived. So the host fills one batch while the
 * device empties others, and a call larger than all of them streams through.
 *
 *     items  | a | b | c | d          | e |
 *     batch  | a | b | c | d .. | .. d | e |      d has arrived when the batch with its end has
 *
 * Packing is done in one line, in the order of the calls. Whoever has to wait, for its turn on a slot or for bytes that are
 * still arriving from elsewhere, waits beside the line and holds no room meanwhile.
 */

import type { Digest } from '../../runtime/digest.ts';
import { corrupt, loaded, refused, type SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import type { ArrivingBytes, StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
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
  readonly call: WriteCall;
  readonly item: StoreItem;
  readonly bytes: number;
  bytesLeft: number;
  /** How many of its bytes were packed. */
  packed: number = 0;
  over: boolean = false;
  lo: number = 0;
  hi: number = 0;
  readonly #ledger: SlotLedger;
  readonly #index: number;

  constructor(ledger: SlotLedger, call: WriteCall, index: number) {
    this.call = call;
    this.item = call.items[index];
    this.bytes = this.item.bytes.byteLength;
    this.bytesLeft = this.bytes;
    this.#ledger = ledger;
    this.#index = index;
  }

  arrived(found: Digest | undefined): void {
    const { slot, digest } = this.item;
    if (found !== undefined && (found.lo !== digest.lo || found.hi !== digest.hi)) {
      this.end(corrupt(`slot ${slot} received other bytes than its digest says`));
      return;
    }
    this.#ledger.fill(this.item);
    this.end(loaded);
  }

  end(result: StoreResult): void {
    this.over = true;
    this.call.settle(this.#index, result);
  }
}

export class Uploads {
  readonly #pool: PoolContext;
  readonly #path: UploadPath;
  readonly #checks: ArrivalChecks;
  readonly #line: Pump<() => Promise<void>>;
  /** Wakes those who wait for bytes. */
  readonly #waits: Set<() => void> = new Set();
  readonly #unsubscribe: () => void;
  #open: Upload | undefined;
  #closed = false;

  constructor(pool: PoolContext, path: UploadPath, checks: ArrivalChecks) {
    this.#pool = pool;
    this.#path = path;
    this.#checks = checks;
    this.#line = new Pump(
      (work) => work(),
      () => this.#flush(),
    );
    this.#unsubscribe = pool.live.onLost(() => this.close());
  }

  /** The call's turn lasts until its bytes are verified, so that nobody reads them before. */
  push(call: WriteCall): void {
    const { turn } = call;
    void call.ended.then(() => this.#pool.turns.leave(turn));
    const begin = (): void => this.#line.push(() => this.#work(call));
    if (turn.mustWait) void turn.wait().then(begin);
    else begin();
  }

  /** Gives up whatever still waits for bytes to arrive. */
  close(): void {
    this.#closed = true;
    this.#unsubscribe();
    for (const wake of this.#waits) wake();
  }

  async #work(call: WriteCall): Promise<void> {
    const { live, ledger } = this.#pool;
    try {
      for (let index = 0; index < call.items.length; index++) {
        const item = call.items[index];
        const refusal = this.#refusal(item);
        if (refusal !== undefined) {
          call.settle(index, refusal);
          continue;
        }
        ledger.take(item);
        const arrival = new Arrival(ledger, call, index);
        if (item.arriving !== undefined) void this.#follow(arrival, item.arriving);
        else if (!this.#pack(arrival, arrival.bytes)) await this.#packRest(arrival, arrival.bytes);
      }
    } catch (error) {
      call.settleRest(giveUpAfter(live, 'an upload', error));
    }
  }

  /** Packs what comes of an item, as it comes, until all is packed or the item has ended. */
  async #follow(arrival: Arrival, source: ArrivingBytes): Promise<void> {
    while (!arrival.over && arrival.packed < arrival.bytes) {
      await this.#more(arrival, source);
      await new Promise<void>((done) => {
        this.#line.push(() => this.#takeOn(arrival, source).finally(done));
      });
    }
  }

  /** Fulfilled when there is more to pack, or when there never will be. */
  async #more(arrival: Arrival, source: ArrivingBytes): Promise<void> {
    if (this.#closed) return;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.#waits.delete(wake);
        resolve();
      };
      this.#waits.add(wake);
      void source.beyond(arrival.packed).then(wake);
    });
  }

  async #takeOn(arrival: Arrival, source: ArrivingBytes): Promise<void> {
    const { live } = this.#pool;
    const failure = this.#closed ? goneFor(live) : source.failure;
    try {
      if (failure === undefined) {
        const to = source.leading;
        if (!this.#pack(arrival, to)) await this.#packRest(arrival, to);
      } else {
        this.#flush(); // what was packed of the item goes before whatever takes its slot next
        arrival.end(failure);
      }
    } catch (error) {
      arrival.end(giveUpAfter(live, 'an upload', error));
    }
  }

  #refusal(item: StoreItem): StoreResult | undefined {
    const { live, ledger, slabs } = this.#pool;
    const refusal = lossOf(live) ?? ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    const fault = bytesFault(item.bytes, slabs.shape.slotBytes[item.sizeClass]);
    return fault === '' ? undefined : refused(fault);
  }

  /** Packs the item's bytes up to `to` as far as there is room at once; false when some are left. */
  #pack(arrival: Arrival, to: number): boolean {
    while (arrival.packed < to && this.#open !== undefined) this.#packInto(this.#open, arrival, to);
    return arrival.packed === to;
  }

  async #packRest(arrival: Arrival, to: number): Promise<void> {
    while (!this.#pack(arrival, to)) {
      if (!(await this.#begin())) return arrival.end(goneFor(this.#pool.live));
    }
  }

  async #begin(): Promise<boolean> {
    const check = await this.#checks.begin();
    const batch = await this.#path.begin();
    if (batch === undefined || check === undefined) return false;
    this.#open = { batch, check, calls: new Set() };
    return true;
  }

  #packInto({ batch, check, calls }: Upload, arrival: Arrival, to: number): void {
    const { slabs } = this.#pool;
    const { call, item, packed: from } = arrival;
    const { slot, sizeClass, bytes } = item;
    const at = batch.used;
    const length = Math.min(to - from, batch.capacity - at);
    const slab = slabs.slabOf(slot, sizeClass);
    const offset = slabs.offsetOf(slot, sizeClass) + from;
    calls.add(call);
    batch.put(length === bytes.byteLength ? bytes : bytes.subarray(from, from + length), slab, offset);
    check.add(arrival, from, length, slab, offset, at);
    arrival.packed += length;
    if (batch.used === batch.capacity || check.full) this.#flush();
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
