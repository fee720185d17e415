/**
 * How it is verified that what an upload brought into the slabs are the bytes that their digests promise. Each way looks at
 * the slabs after the copies, behind the same fence:
 *
 *     kernel     the digest kernel runs over each slot that the upload completes; two words a slot come back
 *     readback   the pieces come back through a ring of their own and the host digests them
 *     none       nobody looks: `write` trusts the way here
 *
 * A GPU digests at the speed of its memory. A software device, which has the host's cores and a bounds check on every load,
 * is many times slower at it than the host is at digesting what comes back; `strategy.ts` measures which is which.
 */

import type { Digest } from '../../runtime/digest.ts';
import { hostDigest } from '../digest/index.ts';
import type { CopyRuns } from './copyRuns.ts';
import type { PlaceBatch } from './placeBatches.ts';
import type { PoolContext } from './poolContext.ts';
import { ReadbackRing } from './readbackRing.ts';
import type { StagingSpread } from './stagingSpread.ts';

export const verificationNames = ['kernel', 'readback', 'none'] as const;
export type VerificationName = (typeof verificationNames)[number];

/** An item of a call under way: how many of its bytes have not arrived, and the digest of those that have. */
export interface Arriving {
  readonly bytes: number;
  bytesLeft: number;
  lo: number;
  hi: number;
  /** Called once all is in place; `found` is undefined where nobody looked. */
  arrived(found: Digest | undefined): void;
}

/** The verification of one upload. */
export interface ArrivalCheck {
  /** No further item fits. */
  readonly full: boolean;
  /** A piece of `item`, from its byte `from` on, that lies at `slabOffset` of the slab and comes at `at` in the upload. */
  add(item: Arriving, from: number, length: number, slab: number, slabOffset: number, at: number): void;
  /** Encodes the check behind the upload's own copies. */
  encode(encoder: GPUCommandEncoder, copies: CopyRuns): void;
  /** Tells the items; false when the device is gone. @param copied the upload's own end */
  finish(copied: Promise<boolean>): Promise<boolean>;
}

export interface ArrivalChecks {
  readonly name: VerificationName;
  /** Undefined when the device is gone. */
  begin(): Promise<ArrivalCheck | undefined>;
  destroy(): Promise<void>;
}

export function openArrivalChecks(
  name: VerificationName,
  pool: PoolContext,
  spread: StagingSpread,
): ArrivalChecks {
  if (name === 'kernel') return new KernelChecks(pool);
  if (name === 'readback') return new ReadbackChecks(pool, spread);
  const begin = async (): Promise<ArrivalCheck> => new Trust();
  return { name, begin, destroy: async () => {} };
}

class Trust implements ArrivalCheck {
  readonly full: boolean = false;
  readonly #items: Arriving[] = [];

  add(item: Arriving, from: number, length: number): void {
    if (from + length === item.bytes) this.#items.push(item);
  }

  encode(): void {}

  async finish(copied: Promise<boolean>): Promise<boolean> {
    if (!(await copied)) return false;
    for (const item of this.#items) item.arrived(undefined);
    return true;
  }
}

class KernelChecks implements ArrivalChecks {
  readonly name = 'kernel';
  readonly #pool: PoolContext;

  constructor(pool: PoolContext) {
    this.#pool = pool;
  }

  async begin(): Promise<ArrivalCheck | undefined> {
    const batch = await this.#pool.batches.acquire();
    return batch === undefined ? undefined : new KernelCheck(this.#pool, batch);
  }

  async destroy(): Promise<void> {}
}

class KernelCheck implements ArrivalCheck {
  readonly #pool: PoolContext;
  readonly #batch: PlaceBatch;
  readonly #items: Arriving[] = [];
  #resultBytes = 0;

  constructor(pool: PoolContext, batch: PlaceBatch) {
    this.#pool = pool;
    this.#batch = batch;
  }

  get full(): boolean {
    return this.#batch.places.full;
  }

  add(item: Arriving, from: number, length: number, slab: number, slabOffset: number): void {
    if (from + length < item.bytes) return;
    this.#batch.places.add(slab, slabOffset - from, item.bytes, 0, 0);
    this.#items.push(item);
  }

  encode(encoder: GPUCommandEncoder): void {
    if (this.#items.length === 0) return;
    const { places, readback } = this.#batch;
    this.#resultBytes = this.#pool.kernels.encode(encoder, 'digest', places, readback);
  }

  finish(): Promise<boolean> {
    const { places } = this.#batch;
    return this.#pool.batches.land(this.#batch, this.#resultBytes, (results) => {
      this.#items.forEach((item, i) => {
        const row = 2 * places.row[i];
        item.arrived({ lo: results[row], hi: results[row + 1] });
      });
    });
  }
}

class ReadbackChecks implements ArrivalChecks {
  readonly name = 'readback';
  readonly #pool: PoolContext;
  readonly #ring: ReadbackRing;

  constructor(pool: PoolContext, spread: StagingSpread) {
    this.#pool = pool;
    this.#ring = new ReadbackRing(pool.live, `${pool.label}.check`, spread);
  }

  async begin(): Promise<ArrivalCheck | undefined> {
    const buffer = await this.#ring.acquire();
    return buffer === undefined ? undefined : new ReadbackCheck(this.#pool, this.#ring, buffer);
  }

  destroy(): Promise<void> {
    return this.#ring.destroy();
  }
}

interface Piece {
  readonly item: Arriving;
  readonly from: number;
  readonly length: number;
  readonly at: number;
}

class ReadbackCheck implements ArrivalCheck {
  readonly full: boolean = false;
  readonly #pool: PoolContext;
  readonly #ring: ReadbackRing;
  readonly #buffer: GPUBuffer;
  readonly #pieces: Piece[] = [];
  #bytes = 0;

  constructor(pool: PoolContext, ring: ReadbackRing, buffer: GPUBuffer) {
    this.#pool = pool;
    this.#ring = ring;
    this.#buffer = buffer;
  }

  add(item: Arriving, from: number, length: number, _slab: number, _slabOffset: number, at: number): void {
    this.#pieces.push({ item, from, length, at });
    this.#bytes = at + length;
  }

  encode(encoder: GPUCommandEncoder, copies: CopyRuns): void {
    copies.encodeFromSlabs(encoder, this.#pool.slabs.buffers, this.#buffer);
  }

  finish(): Promise<boolean> {
    return this.#ring.land(this.#buffer, this.#bytes, (landed) => {
      for (const { item, from, length, at } of this.#pieces) {
        const { lo, hi } = hostDigest(new Uint8Array(landed, at, length), from / 4);
        item.lo = (item.lo + lo) >>> 0;
        item.hi = (item.hi + hi) >>> 0;
        item.bytesLeft -= length;
        if (item.bytesLeft === 0) item.arrived(item);
      }
    });
  }
}
