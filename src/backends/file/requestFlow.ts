/**
 * The way of a request through the store. Its slot stays taken until it leaves the last station:
 *
 *     call -> SlotOrder (its turn on the slot) -> ledger (stale? missing?) -> IoQueue (depth, deadline) -> end
 *
 * Requests of one turn of the event loop go together, sorted by their place in the file, and those on neighbouring records
 * travel in one I/O. What comes after `close` is refused, what had not begun as well; what had goes on to its end.
 */

import { invariant } from '../../runtime/errors.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { refused, SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import type { StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';
import { startsAtPage } from '../arena/index.ts';
import { type DigestThreads, hostDigest } from '../digest/index.ts';
import type { Libc } from '../posix/index.ts';
import { runsOf } from './coalesce.ts';
import { errnoOf } from './dataFile.ts';
import { type FileLayout, recordOffset } from './fileLayout.ts';
import type { FileStoreSettings, StuckIo } from './fileStoreOptions.ts';
import { ioBytes } from './ioLength.ts';
import { IoQueue } from './ioQueue.ts';
import type { OpenedFile } from './openFile.ts';
import { BLOCK_BYTES } from './record.ts';
import { disposed, RecordRun, type RunContext } from './recordRun.ts';
import { SlotOrder, type SlotRequest } from './slotOrder.ts';
import type { SlotEntry } from './slotTable.ts';
import type { StagingPool } from './stagingPool.ts';

/** With so few I/Os in flight, what one of them brings is digested sooner here than on another thread. */
const ALONE_IOS = 2;

/** Of the queue's depth, for one long run: the first of two gets ahead, and one that hangs leaves room for others. */
const LONG_RUN_SHARE = 3 / 4;

export interface FlowParts {
  readonly opened: OpenedFile;
  readonly layout: FileLayout;
  readonly settings: FileStoreSettings;
  readonly staging: StagingPool;
  readonly libc: Libc | undefined;
  readonly digestThreads: DigestThreads;
  readonly onStuck: (stuck: StuckIo) => void;
  /** What an earlier run left in the slots. */
  readonly kept: readonly SlotEntry[];
}

export class RequestFlow {
  readonly #opened: OpenedFile;
  readonly #settings: FileStoreSettings;
  readonly #libc: Libc | undefined;
  readonly #layout: FileLayout;
  readonly #queue: IoQueue;
  readonly #ledger: SlotLedger;
  readonly #order: SlotOrder = new SlotOrder();
  readonly #context: RunContext;
  #drainScheduled = false;
  #sequence = 0;
  #outstanding = 0;
  readonly #bytesUnderWay = { read: 0, write: 0 };
  #ioErrors = 0;
  #lastError = '';
  #timedOut = 0;
  #closed = false;
  #onIdle: () => void = () => {};

  constructor({ opened, layout, settings, staging, libc, digestThreads, onStuck, kept }: FlowParts) {
    this.#opened = opened;
    this.#layout = layout;
    this.#settings = settings;
    this.#libc = libc;
    this.#queue = new IoQueue(settings.queueDepth, settings.deadlineMs);
    this.#ledger = new SlotLedger(layout.shape);
    for (const record of kept) {
      this.#ledger.take(record);
      this.#ledger.fill(record);
    }
    this.#context = {
      file: opened.file,
      extents: opened.extents,
      staging,
      layout,
      family: opened.family,
      piecesAtOnce: Math.ceil(settings.queueDepth * LONG_RUN_SHARE),
      digest: (bytes, firstWord) => {
        const aside = this.#queue.inFlight > ALONE_IOS ? digestThreads.digest(bytes, firstWord) : undefined;
        return aside ?? hostDigest(bytes, firstWord);
      },
      nextSequence: () => opened.warm?.nextSequence() ?? ++this.#sequence,
      sequenceOf: (slot) => opened.warm?.sequenceOf(slot) ?? 0,
      spoiled: (slot) => opened.warm?.spoiled(slot),
      finish: (request, result) => this.#finish(request, result),
      retry: (requests) => {
        for (const request of requests) {
          void bytesToBegin(request).then(() => this.#push([request]));
        }
      },
      stuck: (run, retired) =>
        onStuck({ operation: run.kind, slots: run.requests.map((one) => one.item.slot), retired }),
      failed: (errno) => this.failed(errno),
    };
  }

  /** For `describe`. `stuck` counts runs past their deadline that have not retired. */
  facts(): Record<'stuck' | 'timedOut' | 'ioErrors', number> & { lastError: string } {
    return {
      stuck: this.#queue.overdue,
      timedOut: this.#timedOut,
      ioErrors: this.#ioErrors,
      lastError: this.#lastError,
    };
  }

  /** The disk refused something. */
  failed(errno: string): void {
    this.#ioErrors += 1;
    this.#lastError = errno;
  }

  /** Refuses what has not begun; fulfilled when what has is over. */
  close(): Promise<void> {
    this.#closed = true;
    this.#queue.giveUpWaiting('closed');
    return new Promise<void>((resolve) => {
      this.#onIdle = resolve;
      if (this.#outstanding === 0) resolve();
    });
  }

  /** @throws an invariant when requests are under way */
  requireIdle(): void {
    invariant(this.#outstanding === 0 && this.#order.size === 0, 'requests are still under way');
  }

  submit(kind: SlotRequest['kind'], items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    if (items.length === 0) return Promise.resolve([]);
    if (this.#closed) return Promise.resolve(items.map(() => disposed));
    return new Promise((resolve) => {
      const results = new Array<StoreResult>(items.length);
      let left = items.length;
      this.#outstanding += items.length;
      items.forEach((item, index) => {
        this.#bytesUnderWay[kind] += item.bytes.byteLength;
        const end = (result: StoreResult): void => {
          results[index] = result;
          left -= 1;
          if (left === 0) resolve(results);
        };
        this.#order.enter({
          kind,
          item,
          end,
          staged: !this.#reachable(item.bytes),
          offset: 0,
          sequence: 0,
          begun: false,
          told: false,
          next: undefined,
        });
      });
      this.#scheduleDrain();
    });
  }

  /** Whether the file can be read into and written from these bytes themselves. */
  #reachable(bytes: Uint8Array): boolean {
    if (bytes.byteLength % BLOCK_BYTES !== 0) return false;
    if (this.#opened.facts.mode === 'buffered') return bytes.byteOffset % 4 === 0;
    return startsAtPage(bytes, this.#libc);
  }

  #finish(request: SlotRequest, result: StoreResult): void {
    const loaded = result.outcome === Outcome.LOADED;
    if (request.kind === 'write' && loaded) this.#ledger.fill(request.item);
    if (request.begun) this.#opened.warm?.end(request.item, loaded ? request.sequence : 0);
    else if (loaded) this.#opened.warm?.used(request.item.slot);
    if (result.outcome === Outcome.TIMED_OUT) this.#timedOut += 1;
    this.#outstanding -= 1;
    this.#bytesUnderWay[request.kind] -= request.item.bytes.byteLength;
    this.#order.leave(request);
    this.#scheduleDrain();
    request.end(result);
    if (this.#outstanding === 0) this.#onIdle();
  }

  /** Requests of one turn are looked at together, so that neighbours of different calls travel together too. */
  #scheduleDrain(): void {
    if (this.#drainScheduled || !this.#order.hasReady) return;
    this.#drainScheduled = true;
    queueMicrotask(() => {
      this.#drainScheduled = false;
      this.#drain();
    });
  }

  /** A write takes its slot at its turn. Where its bytes are still to come, it waits for them beside the others. */
  #drain(): void {
    const reads: SlotRequest[] = [];
    const writes: SlotRequest[] = [];
    for (const request of this.#order.takeReady()) {
      const { kind, item } = request;
      const refusal = this.#refusal(request);
      if (refusal !== undefined) {
        this.#finish(request, refusal);
        continue;
      }
      request.offset = recordOffset(this.#layout, item.slot, item.sizeClass);
      if (kind === 'write') this.#ledger.take(item);
      if (item.arriving !== undefined) void bytesToBegin(request).then(() => this.#beginArriving(request));
      else (kind === 'write' ? writes : reads).push(request);
    }
    this.#begin(reads);
    this.#beginWrites(writes);
  }

  #beginArriving(request: SlotRequest): void {
    const failure = this.#closed ? disposed : request.item.arriving!.failure;
    if (failure === undefined) this.#beginWrites([request]);
    else this.#finish(request, failure);
  }

  /** Where restarts are warm, the regions of the file that are written are marked first. */
  #beginWrites(writes: SlotRequest[]): void {
    const { warm } = this.#opened;
    if (warm === undefined) {
      this.#begin(writes);
      return;
    }
    for (const request of writes) request.begun = true;
    const marked = warm.begin(writes.map(({ item }) => item));
    if (marked === undefined) {
      this.#begin(writes);
      return;
    }
    marked.then(
      () => {
        if (!this.#closed) this.#begin(writes);
        else for (const request of writes) this.#finish(request, disposed);
      },
      (error: unknown) => {
        const errno = errnoOf(error);
        this.#context.failed(errno);
        const reason = `the index could not be marked: ${errno}`;
        const outcome = errno === 'ETIMEDOUT' ? Outcome.TIMED_OUT : Outcome.REFUSED;
        for (const request of writes) this.#finish(request, { outcome, reason });
      },
    );
  }

  #refusal({ kind, item }: SlotRequest): StoreResult | undefined {
    if (this.#closed) return disposed;
    const refusal = kind === 'write' ? this.#ledger.refuseWrite(item) : this.#ledger.refuseRead(item);
    if (refusal !== undefined) return refusal;
    const slotBytes = this.#layout.shape.slotBytes[item.sizeClass];
    if (item.bytes.byteLength === slotBytes) return undefined;
    return refused(`${item.bytes.byteLength} bytes for a slot of ${slotBytes}`);
  }

  #begin(requests: readonly SlotRequest[]): void {
    const [first] = requests;
    if (first === undefined) return;
    const togetherBytes = Math.min(this.#settings.coalescedBytes, this.#ioBytes(first));
    for (const run of runsOf(requests, this.#layout, togetherBytes)) this.#push(run);
  }

  #push(run: readonly SlotRequest[]): void {
    const [{ item }] = run as [SlotRequest];
    const pieceBytes = item.onArrived === undefined ? this.#ioBytes(run[0]) : this.#settings.pieceBytes;
    this.#queue.push(new RecordRun(this.#context, run, pieceBytes));
  }

  #ioBytes({ kind }: SlotRequest): number {
    return ioBytes(kind, this.#bytesUnderWay[kind], this.#settings.pieceBytes);
  }
}

/** Of a write whose bytes are still coming: some are there, or all where they go through staging; or no more will come. */
async function bytesToBegin({ item, staged }: SlotRequest): Promise<void> {
  await item.arriving?.beyond(staged ? item.bytes.byteLength - 1 : 0);
}
