/**
 * Boxes of a pool: opened by the first call that moves one, since most pools never do. Until then there are no kernels, no
 * packed buffer and no upload ring of it; reads share the pool's readback ring.
 *
 * What cannot be opened ends the calls that wait for it as `refused`, and the next call tries again.
 */

import { refused } from '../../../runtime/transfer/slotLedger.ts';
import { lossOf, type PoolContext } from '../poolContext.ts';
import type { ReadbackRing } from '../readbackRing.ts';
import { StagingSpread } from '../stagingSpread.ts';
import { UploadRing } from '../uploadRing.ts';
import { type BoxCall, BoxCalls, type ChoosePath } from './boxCalls.ts';
import { boxReads, boxWrites } from './boxDirections.ts';
import { BoxKernels } from './boxKernels.ts';
import { type BoxPathName, choosePath, hardwareRule, softwareRule } from './boxPath.ts';
import { compileBoxPrograms } from './boxPrograms.ts';
import { VECTOR_BYTES } from './pieceList.ts';

const PIECES_PER_BATCH = 4096;

interface Opened {
  readonly reads: BoxCalls;
  readonly writes: BoxCalls;
  readonly kernels: BoxKernels;
  readonly uploadRing: UploadRing;
}

export class Boxes {
  readonly #pool: PoolContext;
  readonly #readbackRing: ReadbackRing;
  readonly #choosePath: ChoosePath;
  #opening: Promise<Opened> | undefined;

  constructor(pool: PoolContext, readbackRing: ReadbackRing, path: BoxPathName | undefined) {
    this.#pool = pool;
    this.#readbackRing = readbackRing;
    const rule = pool.live.adapter.software ? softwareRule : hardwareRule;
    this.#choosePath = (plan, items) => path ?? choosePath(rule, plan, items);
  }

  read(call: BoxCall): void {
    void this.#start(call, ({ reads }) => reads.push(call));
  }

  write(call: BoxCall): void {
    void this.#start(call, ({ writes }) => writes.push(call));
  }

  /** When no call is under way. */
  async destroy(): Promise<void> {
    const opened = await this.#opening?.catch(() => undefined);
    if (opened === undefined) return;
    await opened.uploadRing.destroy();
    opened.kernels.destroy();
  }

  /** Every call takes the same way through the promise, so that calls are worked on in the order in which they were made. */
  async #start(call: BoxCall, push: (opened: Opened) => void): Promise<void> {
    this.#opening ??= this.#open();
    const opening = this.#opening;
    let opened: Opened;
    try {
      opened = await opening;
    } catch (error) {
      if (this.#opening === opening) this.#opening = undefined;
      const why = error instanceof Error ? error.message : error;
      call.settleRest(lossOf(this.#pool.live) ?? refused(`the device cannot move boxes: ${why}`));
      this.#pool.turns.leave(call.turn);
      return;
    }
    push(opened);
  }

  /** The loss of the device ends a wait for its compiler too. */
  async #open(): Promise<Opened> {
    const { live } = this.#pool;
    const opened = await Promise.race([this.#make(), live.lost]);
    if (typeof opened === 'string') throw new Error(opened);
    return opened;
  }

  async #make(): Promise<Opened> {
    const { live, slabs, ledger } = this.#pool;
    const label = `${this.#pool.label}.boxes`;
    const { bufferBytes, spread } = this.#readbackRing;
    const packedBytes = Math.max(VECTOR_BYTES, bufferBytes - (bufferBytes % VECTOR_BYTES));
    const programs = await compileBoxPrograms(live, label);
    live.device.pushErrorScope('out-of-memory');
    const kernels = new BoxKernels(live, programs, slabs, label, PIECES_PER_BATCH, packedBytes);
    const uploadRing = new UploadRing(live, label, new StagingSpread(spread.most));
    const shortage = await live.device.popErrorScope();
    if (shortage !== null) {
      kernels.destroy();
      await uploadRing.destroy();
      throw new Error(shortage.message);
    }
    return {
      reads: new BoxCalls(this.#pool, boxReads(ledger, this.#readbackRing), kernels, this.#choosePath),
      writes: new BoxCalls(this.#pool, boxWrites(ledger, uploadRing), kernels, this.#choosePath),
      kernels,
      uploadRing,
    };
  }
}
