/**
 * Seal, fill and check: a kernel over the slots named, many calls of a kind in one submit. The end of each slot is known
 * when its results have come back, which is also the fence behind which the slot may be used again.
 */

import type { SealItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import type { PlaceBatch } from './placeBatches.ts';
import type { PlaceKernel } from './placeKernels.ts';
import { giveUpAfter, goneFor, lossOf, type PoolContext } from './poolContext.ts';
import { Pump } from './pump.ts';
import type { SlotTurn } from './slotTurns.ts';
import type { StoreCall } from './storeCall.ts';

export interface KernelItem extends SealItem {
  readonly seedLo?: number;
  readonly seedHi?: number;
}

/** What tells the three apart. */
export interface KernelTask<Item extends KernelItem, Result extends StoreResult> {
  readonly kernel: PlaceKernel;
  /** Why the item may not run, or undefined; takes the slot where the kernel gives it new content. */
  admit(item: Item): StoreResult | undefined;
  refuse(end: StoreResult): Result;
  /** The end of an item whose two words of results are (lo, hi). */
  end(item: Item, lo: number, hi: number): Result;
}

/** A call with its task, its types forgotten: the pump holds calls of all three. */
export interface KernelCall {
  readonly kernel: PlaceKernel;
  readonly turn: SlotTurn;
  readonly items: readonly KernelItem[];
  admit(index: number): StoreResult | undefined;
  refuse(index: number, end: StoreResult): void;
  end(index: number, lo: number, hi: number): void;
}

export function kernelCall<Item extends KernelItem, Result extends StoreResult>(
  task: KernelTask<Item, Result>,
  call: StoreCall<Item, Result>,
): KernelCall {
  return {
    kernel: task.kernel,
    turn: call.turn,
    items: call.items,
    admit: (index) => task.admit(call.items[index]),
    refuse: (index, end) => call.settle(index, task.refuse(end)),
    end: (index, lo, hi) => call.settle(index, task.end(call.items[index], lo, hi)),
  };
}

interface Run {
  readonly kernel: PlaceKernel;
  readonly batch: PlaceBatch;
  readonly calls: KernelCall[];
  readonly indexes: number[];
  readonly turns: SlotTurn[];
}

export class KernelCalls {
  readonly #pool: PoolContext;
  readonly #pump: Pump<KernelCall>;
  #open: Run | undefined;

  constructor(pool: PoolContext) {
    this.#pool = pool;
    this.#pump = new Pump(
      (call) => this.#work(call),
      () => this.#flush(),
    );
  }

  push(call: KernelCall): void {
    this.#pump.push(call);
  }

  async #work(call: KernelCall): Promise<void> {
    const { live, turns, slabs } = this.#pool;
    let index = 0;
    try {
      if (call.turn.mustWait || this.#open?.kernel !== call.kernel) this.#flush();
      if (call.turn.mustWait) await call.turn.wait();
      for (; index < call.items.length; index++) {
        const item = call.items[index];
        const refusal = lossOf(live) ?? call.admit(index);
        if (refusal !== undefined) {
          call.refuse(index, refusal);
          continue;
        }
        const run = this.#open ?? (await this.#begin(call.kernel));
        if (run === undefined) {
          call.refuse(index, goneFor(live));
          continue;
        }
        const { slot, sizeClass, seedLo = 0, seedHi = 0 } = item;
        const bytes = slabs.shape.slotBytes[sizeClass];
        run.batch.places.add(
          slabs.slabOf(slot, sizeClass),
          slabs.offsetOf(slot, sizeClass),
          bytes,
          seedLo,
          seedHi,
        );
        run.calls.push(call);
        run.indexes.push(index);
        if (run.batch.places.full) this.#flush();
      }
    } catch (error) {
      const end = giveUpAfter(live, `the ${call.kernel} kernel`, error);
      for (; index < call.items.length; index++) call.refuse(index, end);
    }
    if (this.#open === undefined) turns.leave(call.turn);
    else this.#open.turns.push(call.turn);
  }

  async #begin(kernel: PlaceKernel): Promise<Run | undefined> {
    const batch = await this.#pool.batches.acquire();
    if (batch === undefined) return undefined;
    this.#open = { kernel, batch, calls: [], indexes: [], turns: [] };
    return this.#open;
  }

  #flush(): void {
    const run = this.#open;
    if (run === undefined) return;
    this.#open = undefined;
    const { live, kernels, turns, label } = this.#pool;
    let resultBytes = 0;
    try {
      const encoder = live.device.createCommandEncoder({ label: `${label}.${run.kernel}` });
      resultBytes = kernels.encode(encoder, run.kernel, run.batch.places, run.batch.readback);
      live.device.queue.submit([encoder.finish()]);
    } catch (error) {
      giveUpAfter(live, `the ${run.kernel} kernel`, error);
    }
    for (const turn of run.turns) turns.leave(turn);
    void this.#finish(run, resultBytes);
  }

  async #finish(run: Run, resultBytes: number): Promise<void> {
    const { calls, indexes, batch } = run;
    const landed = await this.#pool.batches.land(batch, resultBytes, (results) => {
      calls.forEach((call, i) => {
        const row = 2 * batch.places.row[i];
        call.end(indexes[i], results[row], results[row + 1]);
      });
    });
    if (landed) return;
    calls.forEach((call, i) => {
      call.refuse(indexes[i], goneFor(this.#pool.live));
    });
  }
}
