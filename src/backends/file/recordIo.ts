/**
 * Reads and writes records: single I/Os, the plan that merges and cuts requests into I/Os, and the scan of
 * marked regions after a crash. A `RecordIo` covers records that lie side by side, or a part of a long one.
 * It lays out headers and payloads as the memory of one vectored call, digests what a read brings, and
 * compares each header with its item. A request ends with the last of its I/Os: with the first failure, else
 * as `loaded`.
 *
 * Payloads move directly between file and the caller's memory where direct I/O can reach it, else through
 * staging memory. When an I/O fails each part is tried again alone, so a bad record does not fail its
 * neighbours.
 */

import { digestBytes } from '../../runtime/digest.ts';
import { invariant } from '../../runtime/errors.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import {
  corrupt,
  loaded,
  refused,
  type SlotPlace,
  type StoreItem,
  type StoreResult,
} from '../../runtime/tier/tierStore.ts';
import { hostDigest } from '../host/hostDigest.ts';
import { BLOCK_BYTES, type DataFile, type Extents, errnoOf, type RangedFile } from './dataFile.ts';
import type { IoKind, QueuedIo, StagingPool } from './ioQueue.ts';
import {
  encodeHeader,
  type FileLayout,
  type FileRecordShape,
  HEADER_BYTES,
  hasMagic,
  headerDisagreement,
  headerFault,
  isRecord,
  pageOf,
  type RecordFacts,
  type RecordFamily,
  recordFacts,
  recordOffset,
} from './record.ts';

/** The store, as an I/O sees it. */
export interface IoContext {
  readonly file: DataFile;
  readonly extents: Extents;
  readonly staging: StagingPool;
  readonly layout: FileLayout;
  readonly family: RecordFamily;
  /** Whether payloads are compared with their digests when read, unless the item is checked later. */
  readonly verifyReads: boolean;
  /** Draws the number of the next record written. */
  nextSequence(): number;
  /** Note to keep with the record of the block with this key, in whole words; empty without one. */
  noteOf(key: Uint32Array, record: FileRecordShape): Uint8Array;
  /** Number of the record last written into the slot, 0 if unknown. */
  sequenceOf(slot: number): number;
  /** Called when the slot holds other bytes than were written there. */
  spoiled(slot: number): void;
  /** Called when the request has its result and no longer touches memory or file. */
  finish(request: SlotRequest, result: StoreResult): void;
  retry(plan: IoPlan): void;
  stuck(io: RecordIo, retired: boolean): void;
  /** Counts an error of the disk. */
  failed(errno: string): void;
}

/** A part of a record, with the memory that the I/O moves for it. */
interface LaidPart {
  readonly part: RecordPart;
  /** Undefined if the part does not include the record's first block. */
  readonly header: Uint32Array | undefined;
  /** Where a note is written; undefined if it lies in another part. */
  readonly note: Uint8Array | undefined;
  readonly payload: Uint8Array;
  /** Offset of `payload` in the slot's bytes. */
  readonly payloadFrom: number;
}

export class RecordIo implements QueuedIo {
  readonly kind: IoKind;
  readonly plan: IoPlan;
  readonly #context: IoContext;
  #overdue = false;

  constructor(context: IoContext, plan: IoPlan) {
    this.kind = plan.parts[0].request.kind;
    this.plan = plan;
    this.#context = context;
  }

  begin(): Promise<void> | undefined {
    const { parts } = this.plan;
    if (parts.every(({ request }) => request.failure !== undefined)) {
      this.#endAll(undefined);
      return Promise.resolve();
    }
    const stagingBytes = parts.reduce((sum, part) => sum + stagingBytesOf(part), 0);
    if (stagingBytes === 0) return this.#run(undefined);
    const staging = this.#context.staging.take(stagingBytes);
    return staging === undefined ? undefined : this.#run(staging);
  }

  overdue(): void {
    this.#overdue = true;
    this.#context.stuck(this, false);
  }

  giveUp(why: 'stuck' | 'closed'): void {
    this.#endAll(why === 'stuck' ? blocked : disposed);
  }

  async #run(staging: Uint8Array | undefined): Promise<void> {
    const memory: Uint8Array[] = [];
    const laid = this.#layOut(staging ?? new Uint8Array(0), memory);
    const direct = this.plan.parts.some(({ request }) => !request.staged);
    const { file } = this.#context;
    let errno = '';
    try {
      if (this.kind === 'read') await file.readv(memory, this.plan.offset);
      else {
        await this.#reserveSpace();
        await file.writev(memory, this.plan.offset);
      }
    } catch (error) {
      errno = errnoOf(error);
      this.#context.failed(errno);
    }
    const isWhole = errno === '' && !this.#overdue;
    const problems = isWhole && this.kind === 'read' ? laid.map((one) => this.#take(one)) : [];
    if (staging !== undefined) this.#context.staging.give(staging);
    if (this.#overdue) {
      this.#context.stuck(this, true);
      this.#endAll(late);
    } else if (errno !== '') this.#fail(errno, direct);
    else this.plan.parts.forEach((part, i) => void this.#end(part, problems[i]));
  }

  /**
   * Assigns memory to each part, fills it for a write, and appends it to `memory` in the order of the file.
   */
  #layOut(staging: Uint8Array, memory: Uint8Array[]): LaidPart[] {
    let used = 0;
    return this.plan.parts.map((part) => {
      const { request, from, to } = part;
      const { payloadOffset, payloadBytes } = request.record;
      const payloadFrom = Math.max(0, from - payloadOffset);
      const payloadTo = Math.max(payloadFrom, Math.min(payloadBytes, to - payloadOffset));
      const own = staging.subarray(used, used + stagingBytesOf(part));
      used += own.byteLength;
      if (own.byteLength > 0) memory.push(own);
      const at = payloadOffset + payloadFrom - from;
      const payload = request.staged
        ? own.subarray(at, at + payloadTo - payloadFrom)
        : request.item.bytes.subarray(payloadFrom, payloadTo);
      if (!request.staged && payload.byteLength > 0) memory.push(payload);
      const header = from > 0 ? undefined : new Uint32Array(own.buffer, own.byteOffset, HEADER_BYTES / 4);
      const { noteOffset, noteBytesMax } = request.record;
      const hasRoom = noteOffset >= from && noteOffset + noteBytesMax - from <= own.byteLength;
      const note = hasRoom ? own.subarray(noteOffset - from, noteOffset - from + noteBytesMax) : undefined;
      const laid = { part, header, note, payload, payloadFrom };
      if (this.kind === 'write') this.#fill(laid, own);
      return laid;
    });
  }

  /** Writes the header, the payload if it is staged, and zeros around them. */
  #fill({ part: { request }, header, note: room, payload, payloadFrom }: LaidPart, own: Uint8Array): void {
    const at = request.staged ? payload.byteOffset - own.byteOffset : own.byteLength;
    own.fill(0, 0, at);
    if (request.staged) {
      payload.set(request.item.bytes.subarray(payloadFrom, payloadFrom + payload.byteLength));
      own.fill(0, at + payload.byteLength);
    }
    if (header === undefined) return;
    const { family } = this.#context;
    // The header names the note, so both are written by one I/O.
    const note = room === undefined ? noNote : this.#context.noteOf(request.item.key, request.record);
    request.sequence = this.#context.nextSequence();
    encodeHeader(header, family, request.record, request.item, request.sequence, note);
    room?.set(note);
  }

  async #reserveSpace(): Promise<void> {
    const { extents, layout } = this.#context;
    for (const { request } of this.plan.parts) {
      const page = pageOf(layout, request.item.slot);
      if (!extents.has(page)) await extents.ensure(page);
    }
  }

  /** Takes what a read has brought. @returns the failure if the header disagrees with the item */
  #take({ part: { request }, header, payload, payloadFrom }: LaidPart): StoreResult | undefined {
    const { item, record } = request;
    if (this.#checks(request)) {
      const digest = hostDigest(payload, payloadFrom / 4);
      request.lo = (request.lo + digest.lo) >>> 0;
      request.hi = (request.hi + digest.hi) >>> 0;
    }
    if (request.staged && request.isReadBack !== true) item.bytes.set(payload, payloadFrom);
    if (header === undefined) return undefined;
    const { family, sequenceOf, spoiled } = this.#context;
    const sequence = sequenceOf(item.slot);
    if (sequence !== 0 && !isRecord(header, family, record, item, sequence)) spoiled(item.slot);
    const disagreement = headerDisagreement(header, family, record, item, sequence);
    return disagreement === '' ? undefined : corrupt(`slot ${item.slot}: ${disagreement}`);
  }

  #checks({ item, isReadBack }: SlotRequest): boolean {
    return isReadBack === true || (this.#context.verifyReads && item.checkedLater !== true);
  }

  /** @param direct whether the I/O used memory of callers, which direct I/O may not be able to reach */
  #fail(errno: string, direct: boolean): void {
    const { parts } = this.plan;
    const unreachable = direct && (errno === 'EFAULT' || errno === 'EINVAL');
    if (unreachable) for (const { request } of parts) request.staged = true;
    if (unreachable || parts.length > 1) {
      for (const part of parts) this.#context.retry(planAlone(part));
      return;
    }
    const [part] = parts;
    const reason = `${errno} on ${this.kind} of slot ${part.request.item.slot}`;
    this.#end(part, errno === 'EOF' ? corrupt(reason) : refused(reason));
  }

  #endAll(failure: StoreResult | undefined): void {
    for (const part of this.plan.parts) this.#end(part, failure);
  }

  /** Ends the part. The last part of a request ends the request. */
  #end({ request }: RecordPart, failure: StoreResult | undefined): void {
    request.failure ??= failure;
    request.iosLeft -= 1;
    if (request.iosLeft > 0) return;
    this.#context.finish(request, request.failure ?? this.#verdict(request));
  }

  #verdict(request: SlotRequest): StoreResult {
    const { item, lo, hi } = request;
    if (this.kind === 'write' || !this.#checks(request)) return loaded;
    if (lo === item.digest.lo && hi === item.digest.hi) return loaded;
    this.#context.spoiled(item.slot);
    return corrupt(`slot ${item.slot}: the bytes do not have their digest`);
  }
}

const noNote = new Uint8Array(0);

export const disposed: StoreResult = refused('the store is disposed');
const blocked: StoreResult = {
  outcome: Outcome.TIMED_OUT,
  reason: 'every I/O in flight is past its deadline',
};
const late: StoreResult = { outcome: Outcome.TIMED_OUT, reason: 'the I/O retired after its deadline' };

/** Bytes of staging memory that a part needs: its whole length, or the header's block. */
function stagingBytesOf({ request, from, to }: RecordPart): number {
  if (request.staged) return to - from;
  return from === 0 ? BLOCK_BYTES : 0;
}

// ---- plan: which I/Os move the records of a batch of requests
//
// Records that lie side by side are merged until they hold `ioBytes` of payload. A record of twice `ioBytes`
// or more is cut. So an I/O moves between one and two times `ioBytes` if there are enough bytes. Cuts lie
// between blocks, and every I/O is one range of the file.
//
//     records    | a | b | c |  d  |      | e ......................... |
//     I/Os       |     1     |  2  |      |    3    |    4    |    5    |

/** One item of a call, on its way through the store. */
export interface SlotRequest {
  readonly kind: IoKind;
  readonly item: StoreItem;
  readonly record: FileRecordShape;
  /** Offset of its record in the file, in bytes. */
  readonly offset: number;
  readonly end: (result: StoreResult) => void;
  /** Whether the bytes go through staging memory, since direct I/O cannot reach the item's own. */
  staged: boolean;
  /** For a read: it compares what was just written there with the item, and keeps the bytes to itself. */
  readonly isReadBack?: boolean;
  /** Whether the record of a write was read back. */
  readonly wasReadBack?: boolean;
  /** Number of the record that a write makes; 0 until the header is laid out. */
  sequence: number;
  /** I/Os of the request that have not ended. */
  iosLeft: number;
  /** The first failure. */
  failure: StoreResult | undefined;
  /** Digest of the payload bytes read so far. */
  lo: number;
  hi: number;
}

/** A record, or its bytes in [from, to). */
interface RecordPart {
  readonly request: SlotRequest;
  readonly from: number;
  readonly to: number;
}

/** One I/O: parts that follow each other in the file, from `offset` on. */
export interface IoPlan {
  readonly offset: number;
  readonly parts: readonly RecordPart[];
}

/** Most records of an I/O. A vectored call takes at most 1,024 pieces of memory; a record is up to two. */
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

/** An I/O of the one part. */
function planAlone(part: RecordPart): IoPlan {
  return { offset: part.request.offset + part.from, parts: [part] };
}

/** Bytes of the longest I/O of a plan: twice `ioBytes` of payload, and headers and padding. */
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

// ---- scan: reads the records of marked regions after a crash, and tells whole records from broken ones
//
// A page holds records of one size class: the class of the whole record that was written last, if leftovers
// of other classes are found. Small records are read many at a time; of large ones the header is read first.

export interface FoundRecord extends RecordFacts {
  readonly slot: number;
  readonly sizeClass: number;
  /** Why the record is not whole; empty if it is. */
  readonly problem: string;
}

const WINDOW_BYTES = 1024 * 1024;
/** Bytes of a record above which its header is read first. */
const WHOLE_BYTES_MAX = 64 * 1024;

export class RecordScan {
  readonly #blocks: RangedFile;
  readonly #layout: FileLayout;
  readonly #family: RecordFamily;
  readonly #staging: StagingPool;
  bytesRead = 0;

  /** @param blocks ranges that were never written hold no record and are skipped */
  constructor(blocks: RangedFile, layout: FileLayout, family: RecordFamily, staging: StagingPool) {
    this.#blocks = blocks;
    this.#layout = layout;
    this.#family = family;
    this.#staging = staging;
  }

  /** The records of a page, whole and broken. Free space is not a record. */
  async page(page: number): Promise<FoundRecord[]> {
    const { shape } = this.#layout;
    const found: FoundRecord[] = [];
    for (let sizeClass = 0; sizeClass < shape.slotBytes.length; sizeClass++) {
      found.push(...(await this.#ofClass(page, sizeClass)));
    }
    const whole = found.filter(({ problem }) => problem === '');
    if (whole.length === 0) return found;
    const newest = whole.reduce((best, record) => (record.sequence > best.sequence ? record : best));
    return found.filter(({ problem, sizeClass, sequence }) =>
      problem === '' ? sizeClass === newest.sizeClass : sequence > newest.sequence,
    );
  }

  /** The record in the slot, or why it does not hold one. */
  record(slot: number, sizeClass: number): Promise<FoundRecord | string> {
    return this.#alone(slot, sizeClass, (memory) => this.#judge(memory, slot, sizeClass));
  }

  /** The payload of a whole record, or why it cannot be read. */
  payload(slot: number, sizeClass: number): Promise<Uint8Array | string> {
    const { payloadOffset, payloadBytes } = this.#layout.records[sizeClass];
    return this.#alone(slot, sizeClass, (memory) =>
      memory.slice(payloadOffset, payloadOffset + payloadBytes),
    );
  }

  /** Reads one record. @returns what `use` makes of its bytes, or why they cannot be read */
  async #alone<T>(slot: number, sizeClass: number, use: (memory: Uint8Array) => T): Promise<T | string> {
    const { recordBytes } = this.#layout.records[sizeClass];
    const memory = this.#take(recordBytes);
    try {
      const errno = await this.#read(memory.subarray(0, recordBytes), slot, sizeClass);
      return errno === '' ? use(memory) : `cannot be read (${errno})`;
    } finally {
      this.#staging.give(memory);
    }
  }

  async #ofClass(page: number, sizeClass: number): Promise<FoundRecord[]> {
    const { shape, records } = this.#layout;
    const { recordBytes } = records[sizeClass];
    const perPage = shape.slotsPerPage[sizeClass];
    const first = page * shape.slotsPerPageMax;
    const found: FoundRecord[] = [];
    const perWindow = recordBytes > WHOLE_BYTES_MAX ? 1 : Math.floor(WINDOW_BYTES / recordBytes);
    for (let index = 0; index < perPage; ) {
      const at = recordOffset(this.#layout, first + index, sizeClass);
      const empty = Math.floor((this.#blocks.ranges.next(at) - at) / recordBytes);
      const count = Math.min(perWindow, perPage - index);
      if (empty === 0) await this.#window(first + index, count, sizeClass, found);
      index += empty === 0 ? count : empty;
    }
    return found;
  }

  async #window(slot: number, count: number, sizeClass: number, found: FoundRecord[]): Promise<void> {
    const { recordBytes } = this.#layout.records[sizeClass];
    const memory = this.#take(count * recordBytes);
    try {
      if (count === 1 && recordBytes > WHOLE_BYTES_MAX) {
        const errno = await this.#read(memory.subarray(0, BLOCK_BYTES), slot, sizeClass);
        if (errno !== '' || !hasMagic(headerIn(memory))) return;
      }
      const errno = await this.#read(memory.subarray(0, count * recordBytes), slot, sizeClass);
      if (errno !== '' && count > 1) {
        for (let i = 0; i < count; i++) await this.#window(slot + i, 1, sizeClass, found);
        return;
      }
      if (errno !== '') return;
      for (let i = 0; i < count; i++) {
        const record = this.#judge(memory.subarray(i * recordBytes), slot + i, sizeClass);
        if (typeof record !== 'string') found.push(record);
      }
    } finally {
      this.#staging.give(memory);
    }
  }

  /** @returns the errno, empty on success. Records under a failed read count as missing */
  async #read(memory: Uint8Array, slot: number, sizeClass: number): Promise<string> {
    try {
      await this.#blocks.file.readv([memory], recordOffset(this.#layout, slot, sizeClass));
      this.bytesRead += memory.byteLength;
      return '';
    } catch (error) {
      return errnoOf(error);
    }
  }

  #judge(memory: Uint8Array, slot: number, sizeClass: number): FoundRecord | string {
    return judgeRecord(memory, { slot, sizeClass }, this.#layout, this.#family);
  }

  #take(bytes: number): Uint8Array {
    const memory = this.#staging.take(bytes);
    invariant(memory !== undefined, 'a scan must have staging memory');
    return memory;
  }
}

/** The record in the bytes of its place, whole or not, or why they hold no record. */
export function judgeRecord(
  memory: Uint8Array,
  place: Pick<SlotPlace, 'slot' | 'sizeClass'>,
  layout: FileLayout,
  family: RecordFamily,
): FoundRecord | string {
  const shape = layout.records[place.sizeClass];
  const header = headerIn(memory);
  const fault = headerFault(header, family, place, shape);
  if (fault !== '') return fault;
  const facts = recordFacts(header);
  return { ...facts, ...place, problem: payloadProblem(memory, shape, facts) };
}

function payloadProblem(memory: Uint8Array, shape: FileRecordShape, facts: RecordFacts): string {
  const { digest, noteBytes } = facts;
  const noteEnd = shape.noteOffset + noteBytes;
  const end = shape.payloadOffset + shape.payloadBytes;
  const computed = hostDigest(memory.subarray(shape.payloadOffset, end));
  if (computed.lo !== digest.lo || computed.hi !== digest.hi) return 'the bytes do not have their digest';
  const isZero = (from: number, to: number) => memory.subarray(from, to).every((byte) => byte === 0);
  const isPadded = shape.apart
    ? isZero(noteEnd, shape.payloadOffset) && isZero(end, shape.recordBytes)
    : isZero(HEADER_BYTES, shape.payloadOffset) && isZero(noteEnd, shape.recordBytes);
  if (!isPadded) return 'its padding is not zero';
  return noteIn(memory, shape, facts) === undefined ? 'its note does not have its digest' : '';
}

/** The note of a record, empty for none; undefined if it is damaged. */
export function noteIn(
  memory: Uint8Array,
  { noteOffset }: FileRecordShape,
  { noteBytes, noteDigest }: RecordFacts,
): Uint8Array | undefined {
  if (noteBytes === 0) return noNote;
  const note = memory.slice(noteOffset, noteOffset + noteBytes);
  const { lo, hi } = digestBytes(note);
  return lo === noteDigest.lo && hi === noteDigest.hi ? note : undefined;
}

export function headerIn(memory: Uint8Array): Uint32Array {
  return new Uint32Array(memory.buffer, memory.byteOffset, HEADER_BYTES / 4);
}
