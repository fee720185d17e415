/**
 * Takes items through the store. An item's slot stays locked until the item ends, and each item ends once:
 *
 *     call -> refused (closed, misplaced, busy, stale, missing)                           -> end
 *          -> locked -> the batch of this turn -> region marks (writes) -> I/Os -> queue   -> end
 *
 * Items of one turn of the event loop are planned together, so that neighbours travel in one I/O. After
 * `close` items that have not begun are refused; the others go on to their end.
 */

import { invariant } from '../../runtime/errors.ts';
import { refused, SlotLedger, SlotLocks } from '../../runtime/tier/slotLedger.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import type { ItemEnded, StoreItem, StoreResult } from '../../runtime/tier/tierStore.ts';
import { BLOCK_BYTES, errnoOf } from './dataFile.ts';
import { type IoKind, IoQueue, type StagingPool } from './ioQueue.ts';
import type { FileStoreOptions, FileStoreSettings, OpenedFile, StuckIo } from './opening.ts';
import { type FileLayout, type FileRecordShape, hasNotes, recordOffset } from './record.ts';
import { disposed, type IoContext, type IoPlan, planIos, RecordIo, type SlotRequest } from './recordIo.ts';
import type { SlotEntry } from './slotTable.ts';

export interface FlowParts {
  readonly opened: OpenedFile;
  readonly layout: FileLayout;
  readonly settings: FileStoreSettings;
  readonly staging: StagingPool;
  readonly onStuck: (stuck: StuckIo) => void;
  readonly noteOf: FileStoreOptions['noteOf'];
  /** Records that an earlier run left in the slots. */
  readonly kept: readonly SlotEntry[];
}

/** The items of one turn of the event loop. */
interface IoBatch {
  /** Reports refusals, after the call has returned. */
  readonly refusals: (() => void)[];
  readonly reads: SlotRequest[];
  readonly writes: SlotRequest[];
}

export class RequestFlow {
  readonly #parts: FlowParts;
  #notesLeftOut = 0;
  readonly #opened: OpenedFile;
  readonly #settings: FileStoreSettings;
  readonly #layout: FileLayout;
  readonly #queue: IoQueue;
  readonly #ledger: SlotLedger;
  readonly #locks: SlotLocks = new SlotLocks();
  readonly #context: IoContext;
  #batch: IoBatch | undefined;
  #sequence = 0;
  /** Number of items that hold a lock. */
  #underWay = 0;
  #ioErrors = 0;
  #lastError = '';
  #timedOut = 0;
  #closed = false;
  #onIdle: () => void = () => {};

  constructor(parts: FlowParts) {
    const { opened, layout, settings, staging, onStuck, kept } = parts;
    this.#parts = parts;
    this.#opened = opened;
    this.#layout = layout;
    this.#settings = settings;
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
      verifyReads: settings.verifyReads,
      nextSequence: () => opened.warm?.nextSequence() ?? ++this.#sequence,
      noteOf: (key, record) => this.#noteOf(key, record),
      sequenceOf: (slot) => opened.warm?.table.sequenceOf(slot) ?? 0,
      spoiled: (slot) => opened.warm?.spoiled(slot),
      finish: (request, result) => this.#finish(request, result),
      retry: (plan) => this.#push(plan),
      stuck: ({ kind, plan }, retired) => {
        onStuck({ operation: kind, slots: plan.parts.map(({ request }) => request.item.slot), retired });
      },
      failed: (errno) => this.failed(errno),
    };
  }

  /**
   * Facts for `describe`. `stuck`: I/Os past their deadline that have not retired. `notesLeftOut`: records that have
   * no room for what was to be kept with them.
   */
  facts(): Record<'stuck' | 'timedOut' | 'ioErrors' | 'notesLeftOut', number> & { lastError: string } {
    return {
      stuck: this.#queue.overdue,
      timedOut: this.#timedOut,
      ioErrors: this.#ioErrors,
      notesLeftOut: this.#notesLeftOut,
      lastError: this.#lastError,
    };
  }

  #noteOf(key: Uint32Array, { noteBytesMax }: FileRecordShape): Uint8Array {
    const { noteOf, opened } = this.#parts;
    const note = hasNotes(opened.family) ? noteOf?.(key) : undefined;
    if (note === undefined) return new Uint8Array(0);
    const words = Math.ceil(note.byteLength / 4) * 4;
    if (words > noteBytesMax) {
      this.#notesLeftOut++;
      return new Uint8Array(0);
    }
    const padded = new Uint8Array(words);
    padded.set(note);
    return padded;
  }

  /** Counts an error of the disk. */
  failed(errno: string): void {
    this.#ioErrors += 1;
    this.#lastError = errno;
  }

  /** Refuses items that have not begun. Fulfilled when the others have ended. */
  close(): Promise<void> {
    this.#closed = true;
    this.#queue.giveUpWaiting('closed');
    return new Promise<void>((resolve) => {
      this.#onIdle = resolve;
      if (this.#underWay === 0) resolve();
    });
  }

  /** @throws an invariant when items are under way */
  requireIdle(): void {
    invariant(this.#underWay === 0 && this.#locks.size === 0, 'items are still under way');
  }

  submit(kind: IoKind, items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    if (items.length === 0) return Promise.resolve([]);
    return new Promise((resolve) => {
      const results = new Array<StoreResult>(items.length);
      let left = items.length;
      items.forEach((item, index) => {
        this.#enter(kind, item, (result) => {
          results[index] = result;
          left -= 1;
          ended?.(index, result);
          if (left === 0) resolve(results);
        });
      });
    });
  }

  #enter(kind: IoKind, item: StoreItem, end: (result: StoreResult) => void): void {
    const batch = this.#thisTurn();
    const refusal = this.#lock(kind, item);
    if (refusal !== undefined) {
      batch.refusals.push(() => end(refusal));
      return;
    }
    this.#underWay += 1;
    if (kind === 'write') this.#ledger.take(item);
    batch[kind === 'write' ? 'writes' : 'reads'].push({
      kind,
      item,
      record: this.#layout.records[item.sizeClass],
      offset: recordOffset(this.#layout, item.slot, item.sizeClass),
      end,
      staged: !this.#reachable(item.bytes),
      sequence: 0,
      iosLeft: 0,
      failure: undefined,
      lo: 0,
      hi: 0,
    });
  }

  /** Locks the item's slot. @returns undefined, or why the slot cannot be locked; then nothing has changed */
  #lock(kind: IoKind, item: StoreItem): StoreResult | undefined {
    if (this.#closed) return disposed;
    const busy = this.#ledger.misplaced(item) ?? this.#locks.take(item.slot, kind);
    if (busy !== undefined) return busy;
    const slotBytes = this.#layout.shape.slotBytes[item.sizeClass];
    let refusal = kind === 'write' ? this.#ledger.refuseWrite(item) : this.#ledger.refuseRead(item);
    if (item.bytes.byteLength !== slotBytes) {
      refusal ??= refused(`${item.bytes.byteLength} bytes for a slot of ${slotBytes}`);
    }
    if (refusal !== undefined) this.#locks.release(item.slot, kind);
    return refusal;
  }

  /** Whether the file can be read into, or written from, `bytes` without staging memory. */
  #reachable(bytes: Uint8Array): boolean {
    if (bytes.byteLength % BLOCK_BYTES !== 0) return false;
    if (this.#opened.facts.mode === 'buffered') return bytes.byteOffset % 4 === 0;
    return this.#opened.folder.isAligned(bytes);
  }

  #thisTurn(): IoBatch {
    if (this.#batch === undefined) {
      this.#batch = { refusals: [], reads: [], writes: [] };
      queueMicrotask(() => this.#endTurn());
    }
    return this.#batch;
  }

  #endTurn(): void {
    const { refusals, reads, writes } = this.#thisTurn();
    this.#batch = undefined;
    for (const tell of refusals) tell();
    this.#begin(reads);
    this.#beginWrites(writes);
  }

  /** Begins the writes. If restarts are warm, the regions that are written are marked first. */
  #beginWrites(writes: readonly SlotRequest[]): void {
    if (writes.length === 0) return;
    const marked = this.#opened.warm?.begin(writes.map(({ item }) => item));
    if (marked === undefined) {
      this.#begin(writes);
      return;
    }
    marked.then(
      () => this.#begin(writes),
      (error: unknown) => {
        const errno = errnoOf(error);
        this.failed(errno);
        const reason = `the index could not be marked: ${errno}`;
        const outcome = errno === 'ETIMEDOUT' ? Outcome.TIMED_OUT : Outcome.REFUSED;
        for (const request of writes) this.#finish(request, { outcome, reason });
      },
    );
  }

  #begin(requests: readonly SlotRequest[]): void {
    if (this.#closed) for (const request of requests) this.#finish(request, disposed);
    else for (const plan of planIos(requests, this.#settings.ioBytes)) this.#push(plan);
  }

  #push(plan: IoPlan): void {
    this.#queue.push(new RecordIo(this.#context, plan));
  }

  #finish(request: SlotRequest, result: StoreResult): void {
    const { kind, item } = request;
    const { warm } = this.#opened;
    const isLoaded = result.outcome === Outcome.LOADED;
    if (kind === 'write') {
      if (isLoaded) this.#ledger.fill(item);
      warm?.end(item, isLoaded ? request.sequence : 0);
    } else if (isLoaded) warm?.used(item.slot);
    if (result.outcome === Outcome.TIMED_OUT) this.#timedOut += 1;
    this.#underWay -= 1;
    this.#locks.release(item.slot, kind);
    request.end(result);
    if (this.#underWay === 0) this.#onIdle();
  }
}
