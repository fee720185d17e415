/**
 * How it is found out what bytes an upload brought into the slabs. Both ways look at the slabs after the upload's copies, in
 * the same submit:
 *
 *     kernelChecks      the digest kernel runs over each slot that the upload completes; two words a slot come back
 *     readbackChecks    the bytes come back through buffers of their own, and the host digests them
 *
 * A GPU digests at the speed of its memory. A software device runs kernels on the host's cores, with a bounds check on every
 * load, and is several times slower at it than the host's own digest.
 */

import type { SlotLocation } from '../types.ts';

/** A whole slot that is uploaded, in one or several batches. */
export interface ArrivingSlot {
  readonly location: SlotLocation;
  readonly slotBytes: number;
  /** The two sums of the digest of what was found so far. */
  lo: number;
  hi: number;
}

/** The check of one upload batch. */
export interface ArrivalCheck {
  /** No further slot fits. */
  readonly full: boolean;
  /** `bytes` bytes of a slot, from its byte `from` on, that lie in the upload's buffer from `at` on. */
  add(slot: ArrivingSlot, from: number, at: number, bytes: number): void;
  /** Encodes the check behind the upload's own copies. */
  encode(encoder: GPUCommandEncoder): void;
  /** Adds what was found to the sums of each slot; false when the device is gone. */
  land(): Promise<boolean>;
}

export interface ArrivalChecks {
  /** A check as soon as its buffers are free; undefined when the device is gone. */
  open(): Promise<ArrivalCheck | undefined>;
  destroy(): Promise<void>;
}
