/**
 * The records of a run of neighbouring slots: lays out header and payload of each as parts of one vectored call, or of a
 * few where a record is long, digests what a read brings piece by piece as it comes, and checks each record against the
 * item that asked for it. Whoever takes bytes on as they come is told of each piece, and a write whose bytes are still coming
 * sends each piece when it is there (stretches.ts). Payloads move from and to the caller's memory itself where direct I/O can
 * reach it, else through staging.
 */

import type { Digest } from '../../runtime/digest.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { corrupt, loaded, refused } from '../../runtime/transfer/slotLedger.ts';
import type { StoreResult } from '../../runtime/transfer/tierStore.ts';
import { type DataFile, errnoOf } from './dataFile.ts';
import type { Extents } from './extents.ts';
import { type FileLayout, pageOf } from './fileLayout.ts';
import type { IoJob } from './ioQueue.ts';
import { cutIntoPieces, type Piece, PieceMove, pieceLengths } from './pieces.ts';
import {
  BLOCK_BYTES,
  encodeHeader,
  HEADER_BYTES,
  headerDisagreement,
  isRecord,
  type RecordFamily,
  type RecordShape,
} from './record.ts';
import type { SlotRequest } from './slotOrder.ts';
import type { StagingPool } from './stagingPool.ts';
import { arrived, filled, NoMoreBytes, type Place, type Stretch, stretchIn } from './stretches.ts';

/** What runs need of their store. */
export interface RunContext {
  readonly file: DataFile;
  readonly extents: Extents;
  readonly staging: StagingPool;
  readonly layout: FileLayout;
  readonly family: RecordFamily;
  /** So many of these at once, at most. */
  readonly piecesAtOnce: number;
  /** Of words that were read, a payload's from `firstWord` on: here, or on a thread beside. */
  digest(bytes: Uint8Array, firstWord: number): Digest | Promise<Digest>;
  /** Number of the next record written. */
  nextSequence(): number;
  /** Number of the record that was written into the slot last, 0 where that is not known. */
  sequenceOf(slot: number): number;
  /** What lies in the slot is not what was written there. */
  spoiled(slot: number): void;
  /** The request has its result and touches nothing any more. */
  finish(request: SlotRequest, result: StoreResult): void;
  /** Do it again, each request by itself. */
  retry(requests: readonly SlotRequest[]): void;
  stuck(run: RecordRun, retired: boolean): void;
  failed(errno: string): void;
}

export class RecordRun implements IoJob {
  readonly kind: 'read' | 'write';
  readonly requests: readonly SlotRequest[];
  readonly #context: RunContext;
  readonly #offset: number;
  readonly #pieces: readonly number[];
  readonly #move: PieceMove;
  #overdue = false;

  /**
   * @param requests whose records lie one after the other in the file
   * @param pieceBytes a longer run moves in several I/Os, of at most about that size
   */
  constructor(context: RunContext, requests: readonly SlotRequest[], pieceBytes: number) {
    this.kind = requests[0].kind;
    this.requests = requests;
    this.#context = context;
    this.#offset = requests[0].offset;
    let payloadBytes = 0;
    let recordBytes = 0;
    for (const request of requests) {
      const record = this.#record(request);
      payloadBytes += record.payloadBytes;
      recordBytes += record.recordBytes;
    }
    const { behindBytes } = requests[0].item;
    this.#pieces = pieceLengths(recordBytes, payloadBytes, pieceBytes, behindBytes);
    this.#move = new PieceMove(this.#pieces.length, context.piecesAtOnce);
  }

  begin(laneEnded: () => void): Promise<void> | undefined {
    const stagingBytes = this.requests.reduce((sum, request) => sum + this.#stagingBytes(request), 0);
    const staging = this.#context.staging.take(stagingBytes);
    return staging === undefined ? undefined : this.#transfer(staging, laneEnded);
  }

  widen(): boolean {
    return this.#move.widen();
  }

  overdue(): void {
    this.#overdue = true;
    this.#context.stuck(this, false);
  }

  giveUp(why: 'stuck' | 'closed'): void {
    this.#end(why === 'stuck' ? blocked : disposed);
  }

  #record(request: SlotRequest): RecordShape {
    return this.#context.layout.records[request.item.sizeClass];
  }

  #stagingBytes(request: SlotRequest): number {
    return request.staged ? this.#record(request).recordBytes : BLOCK_BYTES;
  }

  async #transfer(staging: Uint8Array, laneEnded: () => void): Promise<void> {
    const parts: Uint8Array[] = [];
    const places = this.#layOut(staging, parts);
    let errno = '';
    let lacking: StoreResult | undefined;
    try {
      if (this.kind === 'write') await this.#reserveSpace();
      const pieces = cutIntoPieces(parts, this.#pieces);
      await this.#move.run(pieces, (piece) => this.#movePiece(piece, places), laneEnded);
    } catch (error) {
      if (error instanceof NoMoreBytes) lacking = error.why;
      else errno = errnoOf(error);
    }
    if (this.#overdue) this.#context.stuck(this, true);
    if (lacking !== undefined) this.#end(this.#overdue ? late : lacking);
    else if (errno !== '') this.#fail(errno);
    else for (const place of places) this.#arrive(place);
    this.#context.staging.give(staging);
  }

  async #movePiece(piece: Piece, places: readonly Place[]): Promise<void> {
    const { file } = this.#context;
    if (this.kind === 'write') {
      for (const place of places) if (place.request.item.arriving !== undefined) await filled(piece, place);
      return file.writev(piece.parts, this.#offset + piece.from);
    }
    await file.readv(piece.parts, this.#offset + piece.from);
    const aside: Promise<void>[] = [];
    for (const place of places) {
      const { checkedLater, onArrived } = place.request.item;
      if (checkedLater === true && onArrived === undefined) continue;
      const stretch = stretchIn(piece, place);
      if (stretch === undefined) continue;
      const digest = this.#digestOf(stretch, place);
      if (digest instanceof Promise) aside.push(digest.then((found) => arrived(stretch, place, found)));
      else arrived(stretch, place, digest);
    }
    if (aside.length > 0) await Promise.all(aside);
  }

  #digestOf({ bytes, from }: Stretch, { request }: Place): Digest | Promise<Digest> {
    return request.item.checkedLater === true ? unlooked : this.#context.digest(bytes, from / 4);
  }

  async #reserveSpace(): Promise<void> {
    const { extents, layout } = this.#context;
    for (const { item } of this.requests) {
      const page = pageOf(layout, item.slot);
      if (!extents.has(page)) await extents.ensure(page);
    }
  }

  /** Gives each request its memory, fills it when writing, and lists all of it in the order of the file. */
  #layOut(staging: Uint8Array, parts: Uint8Array[]): Place[] {
    let used = 0;
    let start = 0;
    return this.requests.map((request) => {
      const record = this.#record(request);
      const own = staging.subarray(used, used + this.#stagingBytes(request));
      used += own.byteLength;
      const header = new Uint32Array(own.buffer, own.byteOffset, HEADER_BYTES / 4);
      append(parts, own);
      const payload = request.staged
        ? own.subarray(record.payloadOffset, record.payloadOffset + record.payloadBytes)
        : request.item.bytes;
      if (!request.staged) parts.push(payload);
      if (this.kind === 'write') {
        const { family } = this.#context;
        own.fill(0, HEADER_BYTES, Math.min(BLOCK_BYTES, own.byteLength));
        if (request.staged) {
          payload.set(request.item.bytes);
          own.fill(0, record.payloadOffset + record.payloadBytes);
        }
        request.sequence = this.#context.nextSequence();
        encodeHeader(header, family, record, request.item, request.sequence);
      }
      start += record.recordBytes;
      return { request, record, header, payload, start: start - record.recordBytes, lo: 0, hi: 0 };
    });
  }

  #arrive(place: Place): void {
    this.#context.finish(place.request, this.#overdue ? late : this.#check(place));
  }

  #check({ request, record, header, payload, lo, hi }: Place): StoreResult {
    if (this.kind === 'write') return loaded;
    const { item } = request;
    const { family, sequenceOf, spoiled } = this.#context;
    const sequence = sequenceOf(item.slot);
    if (sequence !== 0 && !isRecord(header, family, record, item, sequence)) spoiled(item.slot);
    const disagreement = headerDisagreement(header, family, record, item, sequence);
    if (disagreement !== '') return corrupt(`slot ${item.slot}: ${disagreement}`);
    if (item.checkedLater !== true && (lo !== item.digest.lo || hi !== item.digest.hi)) {
      spoiled(item.slot);
      return corrupt(`slot ${item.slot}: the bytes do not have their digest`);
    }
    if (request.staged && !request.told) item.bytes.set(payload);
    return loaded;
  }

  #end(result: StoreResult): void {
    for (const request of this.requests) this.#context.finish(request, result);
  }

  #fail(errno: string): void {
    this.#context.failed(errno);
    if (this.#overdue) {
      this.#end(late);
      return;
    }
    const unreachable = errno === 'EFAULT' || errno === 'EINVAL';
    const helped = this.requests.filter((request) => unreachable && !request.staged);
    for (const request of helped) request.staged = true;
    if (this.requests.length > 1 || (helped.length > 0 && !helped[0].told)) {
      this.#context.retry(this.requests);
      return;
    }
    const request = this.requests[0];
    const reason = `${errno} on ${this.kind} of slot ${request.item.slot}`;
    this.#context.finish(request, errno === 'EOF' ? corrupt(reason) : refused(reason));
  }
}

export const disposed: StoreResult = refused('the store is disposed');
const blocked: StoreResult = {
  outcome: Outcome.TIMED_OUT,
  reason: 'every I/O in flight is past its deadline',
};
const late: StoreResult = { outcome: Outcome.TIMED_OUT, reason: 'the I/O retired after its deadline' };

/** Nobody looks here at bytes that are checked later. */
const unlooked: Digest = { lo: 0, hi: 0 };

/** Adds `part`, joined to the last one where the two are neighbours in memory. */
function append(parts: Uint8Array[], part: Uint8Array): void {
  const last = parts.at(-1);
  const touches = last?.buffer === part.buffer && last.byteOffset + last.byteLength === part.byteOffset;
  if (last === undefined || !touches) parts.push(part);
  else {
    parts[parts.length - 1] = new Uint8Array(last.buffer, last.byteOffset, last.byteLength + part.byteLength);
  }
}
