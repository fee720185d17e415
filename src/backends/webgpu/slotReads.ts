/**
 * What is done with the bytes of a slot as they come back through the readback ring, stretch by stretch: a read copies them
 * to its item, a seal digests them. `readbacks.ts` carries both alike.
 */

import type { Digest } from '../../runtime/digest.ts';
import { loaded, refused } from '../../runtime/transfer/slotLedger.ts';
import type { SealItem, SealResult, StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import { hostDigest } from '../digest/index.ts';
import { bytesFault } from './hostBytes.ts';
import type { PoolContext } from './poolContext.ts';
import type { SlotTurn } from './slotTurns.ts';
import type { StoreCall } from './storeCall.ts';

/** A slot on its way to the host. */
export interface SlotRead {
  readonly slot: number;
  readonly sizeClass: number;
  readonly bytes: number;
  /** The slot's bytes from `from` on lie in `landed` at `at`; they are dead afterwards. */
  land(landed: ArrayBuffer, at: number, from: number, length: number): void;
  settle(end: StoreResult): void;
}

/** A call, its types forgotten. */
export interface ReadCall {
  readonly turn: SlotTurn;
  readonly count: number;
  /** Why item `index` is not read, or undefined; takes the slot where the call gives it a new generation. */
  refusal(index: number): StoreResult | undefined;
  begin(index: number): SlotRead;
  settle(index: number, end: StoreResult): void;
  settleRest(end: StoreResult): void;
}

export function readCall(pool: PoolContext, call: StoreCall<StoreItem, StoreResult>): ReadCall {
  const { ledger, slabs } = pool;
  const { items, turn } = call;
  return {
    turn,
    count: items.length,
    refusal(index) {
      const item = items[index];
      const misplaced = ledger.misplaced(item);
      if (misplaced !== undefined) return misplaced;
      const fault = bytesFault(item.bytes, slabs.shape.slotBytes[item.sizeClass]);
      return fault === '' ? ledger.refuseRead(item) : refused(fault);
    },
    begin: (index) => new CopyRead(call, index),
    settle: (index, end) => call.settle(index, end),
    settleRest: (end) => call.settleRest(end),
  };
}

/** @param admit as the task of a seal: the slot takes its generation */
export function sealCall(
  pool: PoolContext,
  call: StoreCall<SealItem, SealResult>,
  admit: (item: SealItem) => StoreResult | undefined,
): ReadCall {
  const { slotBytes } = pool.slabs.shape;
  const { items, turn } = call;
  return {
    turn,
    count: items.length,
    refusal: (index) => admit(items[index]),
    begin: (index) => new DigestRead(call, index, slotBytes[items[index].sizeClass]),
    settle: (index, end) => call.settle(index, { ...end, digest: nothing }),
    settleRest: (end) => call.settleRest({ ...end, digest: nothing }),
  };
}

const nothing: Digest = { lo: 0, hi: 0 };

class CopyRead implements SlotRead {
  readonly slot: number;
  readonly sizeClass: number;
  readonly bytes: number;
  readonly #call: StoreCall<StoreItem, StoreResult>;
  readonly #index: number;
  #bytesLeft: number;

  constructor(call: StoreCall<StoreItem, StoreResult>, index: number) {
    const { slot, sizeClass, bytes } = call.items[index];
    this.slot = slot;
    this.sizeClass = sizeClass;
    this.bytes = bytes.byteLength;
    this.#bytesLeft = bytes.byteLength;
    this.#call = call;
    this.#index = index;
  }

  land(landed: ArrayBuffer, at: number, from: number, length: number): void {
    const { bytes, onArrived } = this.#call.items[this.#index];
    if (bytes.byteLength < from + length) {
      this.settle(refused('the bytes to read into were taken away during the read'));
      return;
    }
    bytes.set(new Uint8Array(landed, at, length), from);
    onArrived?.(from, from + length);
    this.#bytesLeft -= length;
    if (this.#bytesLeft === 0) this.settle(loaded);
  }

  settle(end: StoreResult): void {
    this.#call.settle(this.#index, end);
  }
}

class DigestRead implements SlotRead {
  readonly slot: number;
  readonly sizeClass: number;
  readonly bytes: number;
  readonly #call: StoreCall<SealItem, SealResult>;
  readonly #index: number;
  #bytesLeft: number;
  #lo = 0;
  #hi = 0;

  constructor(call: StoreCall<SealItem, SealResult>, index: number, bytes: number) {
    const { slot, sizeClass } = call.items[index];
    this.slot = slot;
    this.sizeClass = sizeClass;
    this.bytes = bytes;
    this.#bytesLeft = bytes;
    this.#call = call;
    this.#index = index;
  }

  land(landed: ArrayBuffer, at: number, from: number, length: number): void {
    const { lo, hi } = hostDigest(new Uint8Array(landed, at, length), from / 4);
    this.#lo = (this.#lo + lo) >>> 0;
    this.#hi = (this.#hi + hi) >>> 0;
    this.#bytesLeft -= length;
    if (this.#bytesLeft === 0) {
      this.#call.settle(this.#index, { ...loaded, digest: { lo: this.#lo, hi: this.#hi } });
    }
  }

  settle(end: StoreResult): void {
    this.#call.settle(this.#index, { ...end, digest: nothing });
  }
}
