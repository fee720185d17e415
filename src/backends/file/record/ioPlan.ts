/**
 * Which I/Os move the records of a batch of requests. Records that lie side by side go together until they
 * hold `ioBytes` of payload, and a record of twice that or more is cut: so wherever there are bytes enough,
 * an I/O moves from once to twice `ioBytes`. Every cut lies between two blocks, and every I/O is one range of
 * the file.
 *
 *     records    | a | b | c |  d  |      | e ......................... |
 *     I/Os       |     1     |  2  |      |    3    |    4    |    5    |
 */

import type { StoreItem, StoreResult } from '../../../runtime/tier/tierStore.ts';
import { BLOCK_BYTES } from '../io/dataFile.ts';
import type { IoKind } from '../io/ioQueue.ts';
import type { RecordShape } from './record.ts';

/** One item of a call on its way through the store. */
export interface SlotRequest {
  readonly kind: IoKind;
  readonly item: StoreItem;
  readonly record: RecordShape;
  /** Where its record lies in the file. */
  readonly offset: number;
  readonly end: (result: StoreResult) => void;
  /** Direct I/O does not reach the item's own memory, so its bytes go by way of staging memory. */
  staged: boolean;
  /** Number of the record that a write makes; 0 until its header is laid out. */
  sequence: number;
  /** I/Os of the request that have not ended. */
  iosLeft: number;
  /** What went wrong first. */
  failure: StoreResult | undefined;
  /** Digest of the payload that was read so far. */
  lo: number;
  hi: number;
}

/** A record, or the part of one that lies in [from, to). */
export interface RecordPart {
  readonly request: SlotRequest;
  readonly from: number;
  readonly to: number;
}

/** One I/O: parts that lie one behind the other in the file, from `offset` on. */
export interface IoPlan {
  readonly offset: number;
  readonly parts: readonly RecordPart[];
}

/** One vectored call takes at most 1,024 pieces of memory, and a record is two. */
const RECORDS_MAX = 256;

/** The requests' I/Os in the order of the file. Sets `iosLeft` of each request. */
export function planIos(requests: readonly SlotRequest[], ioBytes: number): readonly IoPlan[] {
  const plans: IoPlan[] = [];
  let together: RecordPart[] = [];
  let payloadBytes = 0;
  let end = 0;
  for (const request of requests.toSorted((a, b) => a.offset - b.offset)) {
    const { record, offset } = request;
    if (record.payloadBytes >= 2 * ioBytes) {
      plans.push(...cut(request, ioBytes));
      continue;
    }
    const joins =
      offset === end &&
      payloadBytes < ioBytes &&
      payloadBytes + record.payloadBytes <= 2 * ioBytes &&
      together.length < RECORDS_MAX;
    if (!joins) {
      together = [];
      plans.push({ offset, parts: together });
      payloadBytes = 0;
    }
    request.iosLeft = 1;
    together.push({ request, from: 0, to: record.recordBytes });
    payloadBytes += record.payloadBytes;
    end = offset + record.recordBytes;
  }
  return plans;
}

/** The part alone in an I/O of its own. */
export function planAlone(part: RecordPart): IoPlan {
  return { offset: part.request.offset + part.from, parts: [part] };
}

/** No I/O of a plan is longer: twice `ioBytes` of payload, and what lies between payloads. */
export function longestIoBytes(ioBytes: number): number {
  return Math.ceil((2 * ioBytes) / BLOCK_BYTES) * BLOCK_BYTES + RECORDS_MAX * 2 * BLOCK_BYTES;
}

function cut(request: SlotRequest, ioBytes: number): IoPlan[] {
  const { payloadBytes, recordBytes } = request.record;
  const count = Math.floor(payloadBytes / ioBytes);
  const blocks = recordBytes / BLOCK_BYTES;
  const boundary = (i: number): number => Math.round((i * blocks) / count) * BLOCK_BYTES;
  request.iosLeft = count;
  return Array.from({ length: count }, (_, i) =>
    planAlone({ request, from: boundary(i), to: boundary(i + 1) }),
  );
}
