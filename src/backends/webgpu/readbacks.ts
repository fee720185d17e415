/**
 * Device to host. Slots are packed into staging buffers of the readback ring, each of them one submit of coalesced
 * copies; as a buffer lands, its bytes are copied to the items while the device fills the next ones.
 */

import { loaded, refused } from '../../runtime/transfer/slotLedger.ts';
import type { StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import { CopyRuns } from './copyRuns.ts';
import { bytesFault } from './hostBytes.ts';
import { giveUpAfter, goneFor, lossOf, type PoolContext } from './poolContext.ts';
import { Pump } from './pump.ts';
import type { ReadbackRing } from './readbackRing.ts';
import type { SlotTurn } from './slotTurns.ts';
import type { StoreCall } from './storeCall.ts';

export type ReadCall = StoreCall<StoreItem, StoreResult>;

interface Target {
  readonly call: ReadCall;
  readonly index: number;
  bytesLeft: number;
}

/** A stretch of staging memory and where in its item it belongs. */
interface Piece {
  readonly target: Target;
  readonly from: number;
  readonly stagingOffset: number;
  readonly length: number;
}

interface Readback {
  readonly staging: GPUBuffer;
  used: number;
  readonly copies: CopyRuns;
  readonly pieces: Piece[];
  readonly turns: SlotTurn[];
}

/** So many slots at most ride in one buffer. */
const PIECES_MAX = 4096;

export class Readbacks {
  readonly #pool: PoolContext;
  readonly #ring: ReadbackRing;
  readonly #pump: Pump<ReadCall>;
  #open: Readback | undefined;

  constructor(pool: PoolContext, ring: ReadbackRing) {
    this.#pool = pool;
    this.#ring = ring;
    this.#pump = new Pump(
      (call) => this.#work(call),
      () => this.#flush(),
    );
  }

  push(call: ReadCall): void {
    this.#pump.push(call);
  }

  async #work(call: ReadCall): Promise<void> {
    const { live, turns } = this.#pool;
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
        const target: Target = { call, index, bytesLeft: item.bytes.byteLength };
        for (let done = 0; done < item.bytes.byteLength; ) {
          const readback = this.#open ?? (await this.#begin());
          if (readback === undefined) {
            call.settle(index, goneFor(live));
            break;
          }
          done += this.#pack(readback, target, done);
        }
      }
    } catch (error) {
      call.settleRest(giveUpAfter(live, 'a readback', error));
    }
    if (this.#open === undefined) turns.leave(call.turn);
    else this.#open.turns.push(call.turn);
  }

  #refusal(item: StoreItem): StoreResult | undefined {
    const { live, ledger, slabs } = this.#pool;
    const refusal = lossOf(live) ?? ledger.misplaced(item);
    if (refusal !== undefined) return refusal;
    const fault = bytesFault(item.bytes, slabs.shape.slotBytes[item.sizeClass]!);
    return fault === '' ? ledger.refuseRead(item) : refused(fault);
  }

  async #begin(): Promise<Readback | undefined> {
    const staging = await this.#ring.acquire();
    if (staging === undefined) return undefined;
    this.#open = { staging, used: 0, copies: new CopyRuns(), pieces: [], turns: [] };
    return this.#open;
  }

  #pack(readback: Readback, target: Target, from: number): number {
    const { slabs } = this.#pool;
    const { slot, sizeClass, bytes } = target.call.items[target.index]!;
    const length = Math.min(bytes.byteLength - from, this.#ring.bufferBytes - readback.used);
    const offset = slabs.offsetOf(slot, sizeClass) + from;
    readback.copies.add(slabs.slabOf(slot, sizeClass), offset, readback.used, length);
    readback.pieces.push({ target, from, stagingOffset: readback.used, length });
    readback.used += length;
    if (readback.used === this.#ring.bufferBytes || readback.pieces.length === PIECES_MAX) this.#flush();
    return length;
  }

  #flush(): void {
    const readback = this.#open;
    if (readback === undefined) return;
    this.#open = undefined;
    const { live, slabs, turns, label } = this.#pool;
    try {
      const encoder = live.device.createCommandEncoder({ label: `${label}.readback` });
      readback.copies.encodeFromSlabs(encoder, slabs.buffers, readback.staging);
      live.device.queue.submit([encoder.finish()]);
    } catch (error) {
      giveUpAfter(live, 'a readback', error);
    }
    for (const turn of readback.turns) turns.leave(turn);
    void this.#finish(readback);
  }

  async #finish(readback: Readback): Promise<void> {
    const { pieces } = readback;
    await this.#ring.land(readback.staging, readback.used, (landed) => {
      for (const piece of pieces) this.#deliver(piece, landed);
    });
    if (this.#pool.live.lostReason === '') return;
    for (const { target } of pieces) target.call.settle(target.index, goneFor(this.#pool.live));
  }

  #deliver({ target, from, stagingOffset, length }: Piece, landed: ArrayBuffer): void {
    const { call, index } = target;
    const { bytes } = call.items[index]!;
    if (bytes.byteLength < from + length) {
      call.settle(index, refused('the bytes to read into were taken away during the read'));
      return;
    }
    bytes.set(new Uint8Array(landed, stagingOffset, length), from);
    target.bytesLeft -= length;
    if (target.bytesLeft === 0) call.settle(index, loaded);
  }
}
