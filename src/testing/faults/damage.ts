/** How bytes go wrong without anybody saying so. What comes out always differs from what went in. */

import type { FaultKind } from './faultKinds.ts';
import type { FaultPlan } from './faultPlan.ts';

const SECTOR_BYTES = 512;

export function flipOneBit(bytes: Uint8Array, plan: FaultPlan): void {
  const at = plan.below(bytes.byteLength);
  bytes[at] = bytes[at] ^ (1 << plan.below(8));
}

/** What arrives of `bytes` after a silent fault on a write; `before` is what the slot held. */
export function damaged(
  bytes: Uint8Array,
  kind: FaultKind,
  before: Uint8Array | undefined,
  plan: FaultPlan,
): Uint8Array {
  const copy = bytes.slice();
  if (kind === 'flipped') flipOneBit(copy, plan);
  else tear(copy, kind === 'torn' ? before : undefined, plan);
  if (Buffer.compare(copy, bytes) === 0) flipOneBit(copy, plan);
  return copy;
}

/**
 * The same to bytes that a read has filled; `before` is what the destination held, which a short read leaves
 * there.
 */
export function damageArrived(
  bytes: Uint8Array,
  kind: FaultKind,
  before: Uint8Array | undefined,
  plan: FaultPlan,
): void {
  if (kind === 'flipped') flipOneBit(bytes, plan);
  else {
    const right = bytes.slice();
    tear(bytes, before, plan);
    if (Buffer.compare(bytes, right) === 0) flipOneBit(bytes, plan);
  }
}

/** From a sector boundary on, what was there before, or nothing. */
function tear(bytes: Uint8Array, before: Uint8Array | undefined, plan: FaultPlan): void {
  const sectors = Math.ceil(bytes.byteLength / SECTOR_BYTES);
  const at = plan.below(sectors) * SECTOR_BYTES;
  if (before?.byteLength === bytes.byteLength) bytes.set(before.subarray(at), at);
  else bytes.fill(0, at);
}
