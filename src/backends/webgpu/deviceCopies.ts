/**
 * Whole slots to other slots within device memory. WebGPU copies no buffer onto itself, so between slots of one slab the
 * bytes take two steps, through a scratch buffer; between slabs they take one.
 */

import { loaded, refused } from '../../runtime/transfer/slotLedger.ts';
import type { StoreResult } from '../../runtime/transfer/tierStore.ts';
import { BufferUsage } from './gpuConstants.ts';
import { giveUpAfter, goneFor, lossOf, type PoolContext } from './poolContext.ts';
import { Pump } from './pump.ts';
import type { StoreCall } from './storeCall.ts';
import type { CopyItem } from './types.ts';

export type CopyCall = StoreCall<CopyItem, StoreResult>;

export class DeviceCopies {
  readonly #pool: PoolContext;
  readonly #scratch: GPUBuffer;
  readonly #pump: Pump<CopyCall>;

  constructor(pool: PoolContext, scratchBytes: number) {
    this.#pool = pool;
    this.#scratch = pool.live.device.createBuffer({
      label: `${pool.label}.scratch`,
      size: scratchBytes,
      usage: BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
    });
    this.#pump = new Pump(
      (call) => this.#work(call),
      () => {},
    );
  }

  push(call: CopyCall): void {
    this.#pump.push(call);
  }

  destroy(): void {
    this.#scratch.destroy();
  }

  async #work(call: CopyCall): Promise<void> {
    const { live, turns, label } = this.#pool;
    if (call.turn.mustWait) await call.turn.wait();
    const copied: number[] = [];
    try {
      const encoder = live.device.createCommandEncoder({ label: `${label}.copy` });
      for (let index = 0; index < call.items.length; index++) {
        const refusal = lossOf(live) ?? this.#refusal(call.items[index]);
        if (refusal !== undefined) call.settle(index, refusal);
        else {
          this.#encode(encoder, call.items[index]);
          copied.push(index);
        }
      }
      live.device.queue.submit([encoder.finish()]);
    } catch (error) {
      call.settleRest(giveUpAfter(live, 'a copy', error));
    }
    turns.leave(call.turn);
    void this.#finish(call, copied);
  }

  #refusal({ sizeClass, fromSlot, fromGeneration, toSlot, toGeneration }: CopyItem): StoreResult | undefined {
    const { ledger } = this.#pool;
    if (fromSlot === toSlot) return refused(`slot ${fromSlot} cannot be copied onto itself`);
    return (
      ledger.refuseRead({ slot: fromSlot, sizeClass, generation: fromGeneration }) ??
      ledger.refuseWrite({ slot: toSlot, sizeClass, generation: toGeneration })
    );
  }

  #encode(encoder: GPUCommandEncoder, item: CopyItem): void {
    const { slabs, ledger } = this.#pool;
    const from = slabs.place(item.fromSlot, item.sizeClass);
    const to = slabs.place(item.toSlot, item.sizeClass);
    const target = { slot: item.toSlot, sizeClass: item.sizeClass, generation: item.toGeneration };
    ledger.take(target);
    ledger.fill(target);
    if (from.buffer !== to.buffer) {
      encoder.copyBufferToBuffer(from.buffer, from.offsetBytes, to.buffer, to.offsetBytes, from.sizeBytes);
      return;
    }
    for (let done = 0; done < from.sizeBytes; ) {
      const length = Math.min(from.sizeBytes - done, this.#scratch.size);
      encoder.copyBufferToBuffer(from.buffer, from.offsetBytes + done, this.#scratch, 0, length);
      encoder.copyBufferToBuffer(this.#scratch, 0, to.buffer, to.offsetBytes + done, length);
      done += length;
    }
  }

  async #finish(call: CopyCall, copied: readonly number[]): Promise<void> {
    const done = await this.#pool.live.whenDone();
    const end = done ? loaded : goneFor(this.#pool.live);
    for (const index of copied) call.settle(index, end);
  }
}
