/**
 * Device to host. Slots are packed into staging buffers of the readback ring, each of them one submit of coalesced
 * copies; as a buffer lands, its bytes are taken out (slotReads.ts) while the device fills the next ones.
 */

import { CopyRuns } from './copyRuns.ts';
import { giveUpAfter, goneFor, lossOf, type PoolContext } from './poolContext.ts';
import { Pump } from './pump.ts';
import type { ReadbackRing } from './readbackRing.ts';
import type { ReadCall, SlotRead } from './slotReads.ts';
import type { SlotTurn } from './slotTurns.ts';

/** A stretch of staging memory and where in its slot it belongs. */
interface Piece {
  readonly read: SlotRead;
  readonly from: number;
  readonly stagingOffset: number;
  readonly length: number;
}

interface Readback {
  readonly staging: GPUBuffer;
  /** Bytes after which it leaves. */
  readonly room: number;
  used: number;
  readonly copies: CopyRuns;
  readonly pieces: Piece[];
  readonly turns: SlotTurn[];
}

/** So many slots at most ride in one buffer. */
const PIECES_MAX = 4096;
/** While little is under way a buffer leaves before it is full, so that the host need not wait for the whole first one. */
const RAMP_BYTES = 1024 * 1024;

export class Readbacks {
  readonly #pool: PoolContext;
  readonly #ring: ReadbackRing;
  readonly #pump: Pump<ReadCall>;
  #open: Readback | undefined;
  #bytesUnderWay = 0;

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
      for (let index = 0; index < call.count; index++) {
        const refusal = lossOf(live) ?? call.refusal(index);
        if (refusal !== undefined) {
          call.settle(index, refusal);
          continue;
        }
        const read = call.begin(index);
        for (let done = 0; done < read.bytes; ) {
          const readback = this.#open ?? (await this.#begin());
          if (readback === undefined) {
            read.settle(goneFor(live));
            break;
          }
          done += this.#pack(readback, read, done);
        }
      }
    } catch (error) {
      call.settleRest(giveUpAfter(live, 'a readback', error));
    }
    if (this.#open === undefined) turns.leave(call.turn);
    else this.#open.turns.push(call.turn);
  }

  async #begin(): Promise<Readback | undefined> {
    const staging = await this.#ring.acquire();
    if (staging === undefined) return undefined;
    const room = Math.min(this.#ring.spread.now.bytes, Math.max(RAMP_BYTES, this.#bytesUnderWay));
    this.#open = { staging, room, used: 0, copies: new CopyRuns(), pieces: [], turns: [] };
    return this.#open;
  }

  #pack(readback: Readback, read: SlotRead, from: number): number {
    const { slabs } = this.#pool;
    const { slot, sizeClass } = read;
    const length = Math.min(read.bytes - from, readback.room - readback.used);
    const offset = slabs.offsetOf(slot, sizeClass) + from;
    readback.copies.add(slabs.slabOf(slot, sizeClass), offset, readback.used, length);
    readback.pieces.push({ read, from, stagingOffset: readback.used, length });
    readback.used += length;
    if (readback.used === readback.room || readback.pieces.length === PIECES_MAX) this.#flush();
    return length;
  }

  #flush(): void {
    const readback = this.#open;
    if (readback === undefined) return;
    this.#open = undefined;
    const { live, slabs, turns, label } = this.#pool;
    this.#bytesUnderWay += readback.used;
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
      for (const { read, from, stagingOffset, length } of pieces) {
        read.land(landed, stagingOffset, from, length);
      }
    });
    this.#bytesUnderWay -= readback.used;
    if (this.#pool.live.lostReason === '') return;
    for (const { read } of pieces) read.settle(goneFor(this.#pool.live));
  }
}
