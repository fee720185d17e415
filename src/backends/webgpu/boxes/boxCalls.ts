/**
 * Calls that move boxes one way, packed into staging buffers, each of them one submit. Whatever differs between reading and
 * writing is a `BoxDirection`; order, batches and ends are the same for both:
 *
 *     call --turn--> admit each item --> add to the open batch --> full, or no further call: encode, submit, turns left
 *                                                                  buffer landed: items end as loaded
 *
 * The turn lasts until the commands are submitted. Nothing verifies what moved: see `BoxItem`.
 */

import { invariant } from '../../../runtime/errors.ts';
import { loaded, refused } from '../../../runtime/transfer/slotLedger.ts';
import type { StoreResult } from '../../../runtime/transfer/tierStore.ts';
import { bytesFault } from '../hostBytes.ts';
import { giveUpAfter, goneFor, lossOf, type PoolContext } from '../poolContext.ts';
import { Pump } from '../pump.ts';
import type { SlotTurn } from '../slotTurns.ts';
import type { StoreCall } from '../storeCall.ts';
import type { BoxItem } from '../types.ts';
import { BoxBatch, type Stretch } from './boxBatch.ts';
import type { BoxKernels } from './boxKernels.ts';
import type { BoxPathName } from './boxPath.ts';
import type { BoxPlan } from './boxPlan.ts';

export type BoxCall = StoreCall<BoxItem, StoreResult>;

export type ChoosePath = (plan: BoxPlan, items: number) => BoxPathName;

export interface BoxDirection {
  /** Bytes of a staging buffer. */
  readonly bufferBytes: number;
  /** Why the ledger forbids the item, or undefined; a write takes the place here. */
  admit(item: BoxItem): StoreResult | undefined;
  /** An empty staging buffer; undefined when the device is gone. */
  acquire(): GPUBuffer | undefined | Promise<GPUBuffer | undefined>;
  /** Before the submit: bytes of the item, from `from` on, have a place in the buffer. */
  pack(staging: GPUBuffer, item: BoxItem, from: number, stretch: Stretch): void;
  encode(encoder: GPUCommandEncoder, batch: BoxBatch, staging: GPUBuffer): void;
  /** After the submit: `arrived` once all is done, with the buffer's bytes where they came from the device. */
  land(staging: GPUBuffer, bytes: number, arrived: (landed?: ArrayBuffer) => void): Promise<boolean>;
}

interface Target {
  readonly call: BoxCall;
  readonly index: number;
  bytesLeft: number;
}

interface Piece extends Stretch {
  readonly target: Target;
  readonly from: number;
}

interface Open {
  readonly staging: GPUBuffer;
  readonly pieces: Piece[];
  readonly turns: SlotTurn[];
}

const TAKEN_AWAY = 'the bytes of the item were taken away while they moved';

export class BoxCalls {
  readonly #pool: PoolContext;
  readonly #direction: BoxDirection;
  readonly #choosePath: ChoosePath;
  readonly #piecesMax: number;
  /** Filled for the open staging buffer, empty again from the submit on. */
  readonly #batch: BoxBatch;
  readonly #pump: Pump<BoxCall>;
  #open: Open | undefined;

  constructor(pool: PoolContext, direction: BoxDirection, kernels: BoxKernels, choosePath: ChoosePath) {
    this.#pool = pool;
    this.#direction = direction;
    this.#choosePath = choosePath;
    this.#piecesMax = kernels.piecesMax;
    this.#batch = new BoxBatch(kernels, pool.slabs.buffers, direction.bufferBytes);
    this.#pump = new Pump(
      (call) => this.#work(call),
      () => this.#flush(),
    );
  }

  push(call: BoxCall): void {
    this.#pump.push(call);
  }

  async #work(call: BoxCall): Promise<void> {
    const { live, turns } = this.#pool;
    try {
      if (call.turn.mustWait) {
        this.#flush();
        await call.turn.wait();
      }
      for (let index = 0; index < call.items.length; index++) {
        const refusal = this.#refusal(call.items[index]);
        if (refusal === undefined) await this.#add(call, index);
        else call.settle(index, refusal);
      }
    } catch (error) {
      call.settleRest(giveUpAfter(live, 'moving boxes', error));
    }
    if (this.#open === undefined) turns.leave(call.turn);
    else this.#open.turns.push(call.turn);
  }

  #refusal(item: BoxItem): StoreResult | undefined {
    const { live, ledger, slabs } = this.#pool;
    const refusal = lossOf(live) ?? ledger.misplaced(item);
    if (refusal !== undefined) return refusal;
    const { plan, sizeClass } = item;
    const slotBytes = slabs.shape.slotBytes[sizeClass];
    if (plan.containerBytes > slotBytes) {
      return refused(`a slot of ${slotBytes} bytes holds no unit of ${plan.containerBytes}`);
    }
    const fault = bytesFault(item.bytes, plan.boxBytes, 'box');
    return fault === '' ? this.#direction.admit(item) : refused(fault);
  }

  async #add(call: BoxCall, index: number): Promise<void> {
    const item = call.items[index];
    const { slot, sizeClass, plan } = item;
    const slab = this.#pool.slabs.slabOf(slot, sizeClass);
    const slotOffset = this.#pool.slabs.offsetOf(slot, sizeClass);
    const path = this.#choosePath(plan, call.items.length);
    const target: Target = { call, index, bytesLeft: plan.boxBytes };
    for (let from = 0; from < plan.boxBytes; ) {
      const open = this.#open ?? (await this.#begin());
      if (open === undefined || item.bytes.byteLength !== plan.boxBytes) {
        call.settle(index, open === undefined ? goneFor(this.#pool.live) : refused(TAKEN_AWAY));
        return;
      }
      const stretch =
        open.pieces.length < this.#piecesMax
          ? this.#batch.add(plan, slab, slotOffset, from, path)
          : undefined;
      if (stretch === undefined) {
        invariant(open.pieces.length > 0, 'an empty staging buffer has room for a part of every box');
        this.#flush();
        continue;
      }
      open.pieces.push({ ...stretch, target, from });
      this.#direction.pack(open.staging, item, from, stretch);
      from += stretch.length;
    }
  }

  async #begin(): Promise<Open | undefined> {
    const staging = await this.#direction.acquire();
    if (staging === undefined) return undefined;
    this.#open = { staging, pieces: [], turns: [] };
    return this.#open;
  }

  #flush(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    const { live, turns, label } = this.#pool;
    const bytes = Math.max(4, this.#batch.used); // a buffer comes back by being mapped, which nothing cannot be
    try {
      const encoder = live.device.createCommandEncoder({ label: `${label}.boxes` });
      this.#direction.encode(encoder, this.#batch, open.staging);
      live.device.queue.submit([encoder.finish()]);
    } catch (error) {
      giveUpAfter(live, 'moving boxes', error);
    }
    this.#batch.clear();
    for (const turn of open.turns) turns.leave(turn);
    void this.#finish(open, bytes);
  }

  async #finish({ staging, pieces }: Open, bytes: number): Promise<void> {
    const landed = await this.#direction.land(staging, bytes, (arrived) => {
      for (const piece of pieces) deliver(piece, arrived);
    });
    if (landed) return;
    for (const { target } of pieces) target.call.settle(target.index, goneFor(this.#pool.live));
  }
}

function deliver({ target, from, stagingOffset, length }: Piece, landed: ArrayBuffer | undefined): void {
  const { call, index } = target;
  if (landed !== undefined) {
    const { bytes } = call.items[index];
    if (bytes.byteLength < from + length) {
      call.settle(index, refused(TAKEN_AWAY));
      return;
    }
    bytes.set(new Uint8Array(landed, stagingOffset, length), from);
  }
  target.bytesLeft -= length;
  if (target.bytesLeft === 0) call.settle(index, loaded);
}
