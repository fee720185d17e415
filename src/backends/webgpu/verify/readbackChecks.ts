/** Arrivals checked by the host: the bytes come back as they lie in the slabs, and their digests are added up. */

import { hostDigest } from '../../digest/index.ts';
import { CopyRuns } from '../staging/copyRuns.ts';
import type { ReadbackBuffers } from '../staging/mappedBuffers.ts';
import type { ArrivalCheck, ArrivalChecks, ArrivingSlot } from './arrivalCheck.ts';

export class ReadbackChecks implements ArrivalChecks {
  readonly slabs: readonly GPUBuffer[];
  readonly buffers: ReadbackBuffers;

  /** @param buffers as large as the upload buffers, and of no other use: uploads wait for no reads */
  constructor(slabs: readonly GPUBuffer[], buffers: ReadbackBuffers) {
    this.slabs = slabs;
    this.buffers = buffers;
  }

  async open(): Promise<ArrivalCheck | undefined> {
    const buffer = await this.buffers.acquire();
    return buffer === undefined ? undefined : new ReadbackCheck(this, buffer);
  }

  destroy(): Promise<void> {
    return this.buffers.destroy();
  }
}

interface Part {
  readonly slot: ArrivingSlot;
  readonly from: number;
  readonly at: number;
  readonly bytes: number;
}

class ReadbackCheck implements ArrivalCheck {
  readonly full = false;
  readonly #checks: ReadbackChecks;
  readonly #buffer: GPUBuffer;
  readonly #copies: CopyRuns = new CopyRuns();
  readonly #parts: Part[] = [];
  /** A buffer comes back by being mapped, and nothing cannot be mapped: so it is never fewer than a word. */
  #used = 4;

  constructor(checks: ReadbackChecks, buffer: GPUBuffer) {
    this.#checks = checks;
    this.#buffer = buffer;
  }

  add(slot: ArrivingSlot, from: number, at: number, bytes: number): void {
    const { slab, offsetBytes } = slot.location;
    this.#copies.add(slab, offsetBytes + from, at, bytes);
    this.#parts.push({ slot, from, at, bytes });
    this.#used = at + bytes;
  }

  encode(encoder: GPUCommandEncoder): void {
    this.#copies.encodeToStaging(encoder, this.#checks.slabs, this.#buffer);
  }

  land(): Promise<boolean> {
    return this.#checks.buffers.land(this.#buffer, this.#used, (range) => {
      for (const { slot, from, at, bytes } of this.#parts) {
        const { lo, hi } = hostDigest(new Uint8Array(range, at, bytes), from / 4);
        slot.lo = (slot.lo + lo) >>> 0;
        slot.hi = (slot.hi + hi) >>> 0;
      }
    });
  }
}
