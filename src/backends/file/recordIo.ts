/**
 * One I/O over records that lie side by side, or over a part of a long one. It lays headers and payloads out
 * as the memory of one vectored call, digests what a read brings, and compares each header with the item that
 * asked. A request ends with the last of its I/Os, as the first thing that went wrong says, or as `loaded`.
 *
 * Payloads move from and to the caller's memory itself where direct I/O reaches it, else by way of staging
 * memory. When an I/O fails, each part is tried again alone, so that a bad record takes none of its
 * neighbours with it.
 */

import { invariant } from '../../runtime/errors.ts';
import { corrupt, loaded, refused } from '../../runtime/tier/slotLedger.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../runtime/tier/tierStore.ts';
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

/** What an I/O needs of its store. */
export interface IoContext {
  readonly file: DataFile;
  readonly extents: Extents;
  readonly staging: StagingPool;
  readonly layout: FileLayout;
  readonly family: RecordFamily;
  /** Whether payloads that are read are compared with their digests, unless that happens later. */
  readonly verifyReads: boolean;
  /** Number of the next record written. */
  nextSequence(): number;
  /** Number of the record that was written into the slot last, 0 where that is not known. */
  sequenceOf(slot: number): number;
  /** What lies in the slot is not what was written there. */
  spoiled(slot: number): void;
  /** The request has its result and touches nothing any more. */
  finish(request: SlotRequest, result: StoreResult): void;
  retry(plan: IoPlan): void;
  stuck(io: RecordIo, retired: boolean): void;
  /** The disk refused something. */
  failed(errno: string): void;
}

/** A part of a record and the memory that the I/O moves for it. */
interface LaidPart {
  readonly part: RecordPart;
  /** Undefined where the part has not the record's first block. */
  readonly header: Uint32Array | undefined;
  readonly payload: Uint8Array;
  /** Where `payload` lies in the slot's bytes. */
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

  /** Finds memory for each part, fills it when writing, and lists all of it in the order of the file. */
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
      const laid = { part, header, payload, payloadFrom };
      if (this.kind === 'write') this.#fill(laid, own);
      return laid;
    });
  }

  /** Header, payload where it is staged, and zeros around them. */
  #fill({ part: { request }, header, payload, payloadFrom }: LaidPart, own: Uint8Array): void {
    const at = request.staged ? payload.byteOffset - own.byteOffset : own.byteLength;
    own.fill(0, 0, at);
    if (header !== undefined) {
      const { family } = this.#context;
      request.sequence = this.#context.nextSequence();
      encodeHeader(header, family, request.record, request.item, request.sequence);
    }
    if (!request.staged) return;
    payload.set(request.item.bytes.subarray(payloadFrom, payloadFrom + payload.byteLength));
    own.fill(0, at + payload.byteLength);
  }

  async #reserveSpace(): Promise<void> {
    const { extents, layout } = this.#context;
    for (const { request } of this.plan.parts) {
      const page = pageOf(layout, request.item.slot);
      if (!extents.has(page)) await extents.ensure(page);
    }
  }

  /** What a read has brought. @returns what is wrong with its header */
  #take({ part: { request }, header, payload, payloadFrom }: LaidPart): StoreResult | undefined {
    const { item, record } = request;
    if (this.#checks(request)) {
      const digest = hostDigest(payload, payloadFrom / 4);
      request.lo = (request.lo + digest.lo) >>> 0;
      request.hi = (request.hi + digest.hi) >>> 0;
    }
    if (request.staged) item.bytes.set(payload, payloadFrom);
    if (header === undefined) return undefined;
    const { family, sequenceOf, spoiled } = this.#context;
    const sequence = sequenceOf(item.slot);
    if (sequence !== 0 && !isRecord(header, family, record, item, sequence)) spoiled(item.slot);
    const disagreement = headerDisagreement(header, family, record, item, sequence);
    return disagreement === '' ? undefined : corrupt(`slot ${item.slot}: ${disagreement}`);
  }

  #checks({ item }: SlotRequest): boolean {
    return this.#context.verifyReads && item.checkedLater !== true;
  }

  /** @param direct whether memory of callers took part, which direct I/O may have found out of reach */
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

  /** The I/O has done with the part. The last one of a request ends it. */
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

export const disposed: StoreResult = refused('the store is disposed');
const blocked: StoreResult = {
  outcome: Outcome.TIMED_OUT,
  reason: 'every I/O in flight is past its deadline',
};
const late: StoreResult = { outcome: Outcome.TIMED_OUT, reason: 'the I/O retired after its deadline' };

/** Staging memory of a part: all of it, or the block of its header alone. */
function stagingBytesOf({ request, from, to }: RecordPart): number {
  if (request.staged) return to - from;
  return from === 0 ? BLOCK_BYTES : 0;
}

// Which I/Os move the records of a batch of requests. Records that lie side by side go together until they
// hold `ioBytes` of payload, and a record of twice that or more is cut: so wherever there are bytes enough,
// an I/O moves from once to twice `ioBytes`. Every cut lies between two blocks, and every I/O is one range of
// the file.
//
//     records    | a | b | c |  d  |      | e ......................... |
//     I/Os       |     1     |  2  |      |    3    |    4    |    5    |

/** One item of a call on its way through the store. */
export interface SlotRequest {
  readonly kind: IoKind;
  readonly item: StoreItem;
  readonly record: FileRecordShape;
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

// Reads the records of marked regions, as a start after a crash must: which are whole, by header and by
// payload, and which are not. A page holds records of one size class; where leftovers of another are found it
// is that of the whole record that was written last. Small records are read many at a time, large ones by
// their header first.

export interface FoundRecord extends RecordFacts {
  readonly slot: number;
  readonly sizeClass: number;
  /** Why it is not whole; empty where it is. */
  readonly problem: string;
}

const WINDOW_BYTES = 1024 * 1024;
/** Records larger than this are not read before their header was. */
const WHOLE_BYTES_MAX = 64 * 1024;

export class RecordScan {
  readonly #blocks: RangedFile;
  readonly #layout: FileLayout;
  readonly #family: RecordFamily;
  readonly #staging: StagingPool;
  bytesRead = 0;

  /** @param blocks what was never written there is no record, and is not read */
  constructor(blocks: RangedFile, layout: FileLayout, family: RecordFamily, staging: StagingPool) {
    this.#blocks = blocks;
    this.#layout = layout;
    this.#family = family;
    this.#staging = staging;
  }

  /** The records of a page, whole and broken ones. Free space is not a record. */
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

  /** The record of one slot, or why there is none. */
  record(slot: number, sizeClass: number): Promise<FoundRecord | string> {
    return this.#alone(slot, sizeClass, (memory) => this.#judge(memory, slot, sizeClass));
  }

  /** The bytes of a record that was found whole, or why they cannot be read. */
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

  /** @returns the errno, '' for none; the records that a failed read was of count as not there */
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
    const shape = this.#layout.records[sizeClass];
    const header = headerIn(memory);
    const fault = headerFault(header, this.#family, { slot, sizeClass }, shape);
    if (fault !== '') return fault;
    const facts = recordFacts(header);
    return { ...facts, slot, sizeClass, problem: payloadProblem(memory, shape, facts) };
  }

  #take(bytes: number): Uint8Array {
    const memory = this.#staging.take(bytes);
    invariant(memory !== undefined, 'a scan has its staging memory');
    return memory;
  }
}

function payloadProblem(memory: Uint8Array, shape: FileRecordShape, { digest }: RecordFacts): string {
  const end = shape.payloadOffset + shape.payloadBytes;
  const computed = hostDigest(memory.subarray(shape.payloadOffset, end));
  if (computed.lo !== digest.lo || computed.hi !== digest.hi) return 'the bytes do not have their digest';
  const isZero = (from: number, to: number) => memory.subarray(from, to).every((byte) => byte === 0);
  const isPadded = isZero(HEADER_BYTES, shape.payloadOffset) && isZero(end, shape.recordBytes);
  return isPadded ? '' : 'its padding is not zero';
}

function headerIn(memory: Uint8Array): Uint32Array {
  return new Uint32Array(memory.buffer, memory.byteOffset, HEADER_BYTES / 4);
}
