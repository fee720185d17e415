/**
 * One I/O over records that lie side by side, or over a part of a long one. It lays headers and payloads out
 * as the memory of one vectored call, digests what a read brings, and compares each header with the item that
 * asked. A request ends with the last of its I/Os, as the first thing that went wrong says, or as `loaded`.
 *
 * Payloads move from and to the caller's memory itself where direct I/O reaches it, else by way of staging
 * memory. When an I/O fails, each part is tried again alone, so that a bad record takes none of its
 * neighbours with it.
 */

import { corrupt, loaded, refused } from '../../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../../runtime/tier/tierStore.ts';
import { Outcome } from '../../../runtime/transfer/outcome.ts';
import { hostDigest } from '../../digest/index.ts';
import { BLOCK_BYTES, type DataFile, errnoOf } from '../io/dataFile.ts';
import type { Extents } from '../io/extents.ts';
import type { IoKind, QueuedIo } from '../io/ioQueue.ts';
import type { StagingPool } from '../io/stagingPool.ts';
import { type FileLayout, pageOf } from './fileLayout.ts';
import { type IoPlan, planAlone, type RecordPart, type SlotRequest } from './ioPlan.ts';
import { encodeHeader, HEADER_BYTES, headerDisagreement, isRecord, type RecordFamily } from './record.ts';

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
