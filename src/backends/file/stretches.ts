/**
 * What one piece of a run moves of a payload. Of a read it is digested as it comes, and whoever takes the bytes on is told; of a
 * write whose bytes are still coming it is waited for:
 *
 *     record     | header | payload ................... | next record
 *     pieces     |     1      |      2      |      3      |
 *     stretches           | 1 |      2      |   3   |
 */

import type { Digest } from '../../runtime/digest.ts';
import type { StoreResult } from '../../runtime/transfer/tierStore.ts';
import type { Piece } from './pieces.ts';
import type { RecordShape } from './record.ts';
import type { SlotRequest } from './slotOrder.ts';

/** A request's memory in a run. */
export interface Place {
  readonly request: SlotRequest;
  readonly record: RecordShape;
  readonly header: Uint32Array;
  readonly payload: Uint8Array;
  /** Where the record starts in the run. */
  readonly start: number;
  /** Digest of what has arrived of the payload. */
  lo: number;
  hi: number;
}

export interface Stretch {
  readonly from: number;
  readonly to: number;
  readonly bytes: Uint8Array;
}

/** Undefined where the piece touches no byte of the payload. */
export function stretchIn(piece: Piece, { record, payload, start }: Place): Stretch | undefined {
  const payloadStart = start + record.payloadOffset;
  const from = Math.max(0, piece.from - payloadStart);
  const to = Math.min(record.payloadBytes, piece.to - payloadStart);
  return from < to ? { from, to, bytes: payload.subarray(from, to) } : undefined;
}

/** Adds what a piece brought to the digest of its payload, and tells of it. */
export function arrived({ from, to, bytes }: Stretch, place: Place, { lo, hi }: Digest): void {
  place.lo = (place.lo + lo) >>> 0;
  place.hi = (place.hi + hi) >>> 0;
  const { request } = place;
  const { item } = request;
  if (item.onArrived === undefined) return;
  if (request.staged) item.bytes.set(bytes, from);
  request.told = true;
  item.onArrived(from, to);
}

/** The bytes of a write will not all come. */
export class NoMoreBytes extends Error {
  readonly why: StoreResult;

  constructor(why: StoreResult) {
    super(why.reason);
    this.why = why;
  }
}

/** Fulfilled when what the piece writes of the payload is there. @throws NoMoreBytes */
export async function filled(piece: Piece, place: Place): Promise<void> {
  const { arriving } = place.request.item;
  const stretch = arriving === undefined ? undefined : stretchIn(piece, place);
  if (arriving === undefined || stretch === undefined) return;
  await arriving.beyond(stretch.to - 1);
  if (arriving.failure !== undefined) throw new NoMoreBytes(arriving.failure);
}
