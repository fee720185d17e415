/**
 * The NVMe tier: one preallocated file of self-describing records, with a fixed place for each slot
 * (record.ts). `FileStore` opens, describes and closes the store; `RequestFlow` takes items through it.
 *
 * - A slot that this store never wrote is `missing`, without a look at the file.
 * - Every read is checked: the whole header against the item, then the payload against its digest, unless the
 *   item is checked later or `verifyReads` is off.
 * - Errors of the disk are outcomes. A failed write leaves the slot empty; a failed read changes nothing.
 * - An I/O past its deadline ends as `timedOut` when it retires. Until then `describe().stuck` counts it.
 */

import { invariant, namedError, requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import { Outcome, Tier } from '../../runtime/tier/tier.ts';
import {
  type ItemEnded,
  refused,
  SlotLedger,
  SlotLocks,
  type SlotPlace,
  type StoreItem,
  type StoreResult,
  type TierStore,
} from '../../runtime/tier/tierStore.ts';
import { guarded } from '../guarded.ts';
import { runningClock } from '../runningClock.ts';
import { BLOCK_BYTES, errnoOf } from './dataFile.ts';
import { type IoKind, IoQueue, StagingPool } from './ioQueue.ts';
import { closedStore, NoteReader } from './noteReader.ts';
import {
  BLOCKS_NAME,
  checkedOptions,
  describeWarm,
  type FileStoreOptions,
  type FileStoreSettings,
  INDEX_NAME,
  type OpenedFile,
  openDataFile,
  type StuckIo,
} from './opening.ts';
import { folderAt } from './posixFolder.ts';
import { Proofs } from './proof.ts';
import {
  type FileLayout,
  type FileRecordShape,
  fileLayout,
  hasNotes,
  recordBytesMax,
  recordOffset,
} from './record.ts';
import {
  disposed,
  type IoContext,
  type IoPlan,
  longestIoBytes,
  planIos,
  RecordIo,
  type SlotRequest,
} from './recordIo.ts';
import type { SlotEntry } from './slotTable.ts';

/** Least staging memory, in bytes. */
const STAGING_BYTES_MIN = 16 * 1024 * 1024;
/** Number of I/Os of the longest kind that staging memory must hold at once. */
const STAGED_IOS = 4;

export class FileStore implements TierStore {
  readonly tier: Tier = Tier.NVME;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'];
  readonly #opened: OpenedFile;
  readonly #settings: FileStoreSettings;
  readonly #layout: FileLayout;
  readonly #staging: StagingPool;
  readonly #notes: NoteReader;
  readonly #flow: RequestFlow;
  /** Identity of each file when it was opened, by name. */
  readonly #identities: ReadonlyMap<string, string>;
  #disposing: Promise<void> | undefined;

  private constructor(
    opened: OpenedFile,
    layout: FileLayout,
    settings: FileStoreSettings,
    staging: StagingPool,
    identities: ReadonlyMap<string, string>,
    onStuck: (stuck: StuckIo) => void,
    noteOf: FileStoreOptions['noteOf'],
  ) {
    this.capacityBytes = layout.shape.capacityBytes;
    this.verifies = { onWrite: false, onRead: settings.verifyReads };
    this.#opened = opened;
    this.#layout = layout;
    this.#settings = settings;
    this.#staging = staging;
    this.#identities = identities;
    const { file, family } = opened;
    this.#notes = new NoteReader({ file, family, layout }, settings);
    const kept = this.records();
    this.#flow = new RequestFlow({ opened, layout, settings, staging, onStuck, noteOf, kept });
  }

  /**
   * Opens the directory for this process alone. The store begins empty or, with `restart: 'warm'`, with the
   * records that are there.
   * @throws TKV_CONFIG for a wrong option or shape. With field `dir`: TKV_IO; TKV_LOCKED if another process
   * owns the directory; TKV_MISMATCH if it holds a file that is not tierkv's. With the part of the identity
   * that differs as field: TKV_MISMATCH if a warm restart finds blocks of another model, layout or key.
   */
  static async open(dir: string, shape: PoolShape, options: FileStoreOptions = {}): Promise<FileStore> {
    checkInputs(
      { dir, shape, options },
      {
        dir: is.name(),
        shape: is.fields({ pageBytes: is.number(), pages: is.number() }),
        options: is.optional(is.object()),
      },
    );
    const settings = checkedOptions(options);
    requireInteger('pages', shape.pages, 1);
    const layout = fileLayout(shape);
    const folder = await folderAt(dir, settings.native);
    const longestBytes = Math.max(longestIoBytes(settings.ioBytes), recordBytesMax(layout));
    const stagingBytes = Math.max(STAGING_BYTES_MIN, STAGED_IOS * longestBytes);
    const staging = await StagingPool.open(stagingBytes, settings.native);
    try {
      const wrapFile = options.wrapFile ?? ((file) => file);
      const wrapDirectory = options.wrapDirectory ?? ((ops) => ops);
      const opened = await openDataFile({ folder, layout, settings, staging, wrapFile, wrapDirectory });
      const names = opened.warm === undefined ? [BLOCKS_NAME] : [BLOCKS_NAME, INDEX_NAME];
      const identities = new Map<string, string>();
      for (const name of names) identities.set(name, await folder.identityOf(name));
      const onStuck = guarded(options.onStuck);
      return new FileStore(opened, layout, settings, staging, identities, onStuck, options.noteOf);
    } catch (error) {
      staging[Symbol.dispose]();
      throw error;
    }
  }

  /** The tier is degraded while `stuck`, the number of I/Os past their deadline, is above 0. */
  describe(): Record<string, string | number | boolean> {
    const { path, facts, extents } = this.#opened;
    const all: Record<string, string | number | boolean> = {
      store: 'file',
      path,
      ...facts,
      allocation: this.#settings.allocation,
      fileBytesMax: this.#layout.fileBytes,
      allocatedBytes: extents.allocatedBytes,
      alignmentBytes: BLOCK_BYTES,
      queueDepth: this.#settings.queueDepth,
      deadlineMs: this.#settings.deadlineMs,
      verifyReads: this.#settings.verifyReads,
      ...this.#flow.facts(),
      physicalBytes: this.#opened.folder.bytesOf([BLOCKS_NAME, INDEX_NAME]),
      ...describeWarm(this.#opened),
    };
    // Empty facts are left out.
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ''));
  }

  /**
   * The records in the slots, least recently used first. A block was used whenever one behind it in its chain was, so it
   * comes after them, whenever it was written. Empty unless restarts are warm.
   */
  records(): SlotEntry[] {
    const table = this.#opened.warm?.table;
    if (table === undefined) return [];
    return table.chainsByLastUse();
  }

  /** Whether records can have notes: those of a store that an older tierkv made cannot. */
  get hasNotes(): boolean {
    return hasNotes(this.#opened.family);
  }

  /**
   * The note that was kept with a record (`noteOf`); undefined where none was, or the slot has another record by now.
   * @throws TKV_IO when it is not read by the deadline, TKV_STATE when the store is closed
   */
  note(entry: SlotEntry): Promise<Uint8Array | undefined> {
    return this.#notes.read(entry);
  }

  /** Fulfilled when all writes that have ended survive a loss of power. @throws TKV_IO, TKV_STATE when it is closed */
  async sync(): Promise<void> {
    this.#requireOpen();
    try {
      await this.#opened.warm?.durability.sync();
    } catch (error) {
      throw this.#opened.folder.problem('making writes durable', error);
    }
  }

  /**
   * Does what `sync` does, and reads every record that was written and not read since.
   * @returns places that do not hold what was written there; they hold nothing from now on, and the next start finds nothing
   * @throws as `sync`, also when a record cannot be read
   */
  async prove(): Promise<readonly SlotPlace[]> {
    await this.sync();
    let damaged: readonly SlotPlace[] = [];
    try {
      damaged = (await this.#flow.proofs?.prove()) ?? [];
    } catch (error) {
      throw this.#opened.folder.problem('reading back what was written', error);
    }
    if (damaged.length > 0) await this.checkpoint();
    return damaged;
  }

  write(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#flow.submit('write', items, ended);
  }

  read(items: readonly StoreItem[], ended?: ItemEnded): Promise<readonly StoreResult[]> {
    return this.#flow.submit('read', items, ended);
  }

  /**
   * Refuses items that have not begun, waits for the others, and unlocks the directory. It waits no longer
   * than the deadline: an I/O that has not retired by then keeps file, memory and lock until it does.
   */
  [Symbol.asyncDispose](): Promise<void> {
    this.#disposing ??= this.#dispose();
    return this.#disposing;
  }

  /** Writes a checkpoint, so that a start after a crash reads nothing written before. @throws as `sync` */
  async checkpoint(): Promise<void> {
    this.#requireOpen();
    try {
      await this.#opened.warm?.checkpoint();
    } catch (error) {
      throw this.#opened.folder.problem('writing a checkpoint', error);
    }
  }

  /** For tests, while nothing is in flight. @throws an invariant if requests, staging and queue disagree */
  checkIntegrity(): void {
    this.#flow.requireIdle();
    this.#staging.checkIntegrity();
    this.#opened.warm?.checkIntegrity();
  }

  /** @throws TKV_IO if a file was removed or replaced, since no later start would find its blocks */
  async requireInPlace(): Promise<void> {
    const { folder } = this.#opened;
    for (const [name, identity] of this.#identities) {
      if ((await folder.identityOf(name)) === identity) continue;
      const path = folder.pathOf(name);
      throw namedError(
        'TKV_IO',
        { field: 'dir', path },
        (name) =>
          `${name('dir')} ${folder.path}: ${path} was removed or replaced while it was in use, and its blocks are gone ` +
          'with it. Close the store and open it again, and keep others out of the directory.',
      );
    }
  }

  /** The numbers of closed files belong to other files of the process by now. @throws TKV_STATE */
  #requireOpen(): void {
    if (this.#disposing !== undefined) throw closedStore();
  }

  async #dispose(): Promise<void> {
    const notes = this.#notes.close();
    const closed = this.#flow.close().then(async () => {
      await notes;
      await this.#opened.warm?.close();
      await this.#opened.close().catch((error: unknown) => this.#flow.failed(errnoOf(error)));
      this.#staging[Symbol.dispose]();
    });
    const patience = Promise.withResolvers<void>();
    const giveUp = (): void => {
      this.#opened.abandon();
      patience.resolve();
    };
    const stop = runningClock.alarm(this.#settings.deadlineMs, giveUp, true);
    await Promise.race([closed, patience.promise]);
    stop();
  }
}

// Takes items through the store. An item's slot stays locked until the item ends, and each item ends once:
//
//     call -> refused (closed, misplaced, busy, stale, missing)                           -> end
//          -> locked -> the batch of this turn -> region marks (writes) -> I/Os -> queue   -> end
//
// Items of one turn of the event loop are planned together, so that neighbours travel in one I/O. After
// `close` items that have not begun are refused; the others go on to their end.

interface FlowParts {
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

class RequestFlow {
  readonly #parts: FlowParts;
  /** Undefined where no record outlives the process. */
  readonly proofs: Proofs | undefined;
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
      spoiled: (slot) => this.#spoiled(slot),
      finish: (request, result) => this.#finish(request, result),
      retry: (plan) => this.#push(plan),
      stuck: ({ kind, plan }, retired) => {
        onStuck({ operation: kind, slots: plan.parts.map(({ request }) => request.item.slot), retired });
      },
      failed: (errno) => this.failed(errno),
    };
    if (opened.warm === undefined) return;
    const { file, family, warm } = opened;
    this.proofs = new Proofs({
      file,
      layout,
      family,
      staging,
      table: warm.table,
      push: (io) => this.#queue.push(io),
      spoiled: (slot) => this.#spoiled(slot),
      failed: (errno) => this.failed(errno),
    });
    warm.durability.follow(this.proofs);
  }

  #spoiled(slot: number): void {
    this.#opened.warm?.spoiled(slot);
    this.proofs?.forget(slot);
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
    if (kind === 'write') {
      this.#ledger.take(item);
      this.proofs?.writing(item.slot);
    }
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
  #beginWrites(batch: readonly SlotRequest[]): void {
    const writes = batch.filter((request) => {
      const free = this.proofs?.free(request.item.slot);
      void free?.then(() => this.#beginWrites([request]));
      return free === undefined;
    });
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

  /** Reads what was just written, and ends the write as that says. The slot stays locked, and the item's bytes untouched. */
  #readBack(written: SlotRequest): void {
    const { item } = written;
    const read: SlotRequest = {
      ...written,
      kind: 'read',
      staged: true,
      isReadBack: true,
      iosLeft: 0,
      failure: undefined,
      end: (result) => {
        const isWrong = result.outcome === Outcome.CORRUPT;
        if (isWrong) this.failed('EIO');
        const wrong = refused(`EIO on write of slot ${item.slot}: read back, ${result.reason}`);
        this.#finish({ ...written, wasReadBack: true }, isWrong ? wrong : result);
      },
    };
    this.#begin([read]);
  }

  #finish(request: SlotRequest, result: StoreResult): void {
    const { kind, item } = request;
    if (request.isReadBack === true) {
      request.end(result);
      return;
    }
    const isDone = item.readBack !== true || request.wasReadBack === true;
    if (kind === 'write' && !isDone && result.outcome === Outcome.LOADED) {
      this.#readBack(request);
      return;
    }
    const { warm } = this.#opened;
    const isLoaded = result.outcome === Outcome.LOADED;
    if (kind === 'write') {
      if (isLoaded) {
        this.#ledger.fill(item);
        this.proofs?.written(item.slot, request.wasReadBack === true);
      } else this.proofs?.notWritten(item.slot);
      warm?.end(item, isLoaded ? request.sequence : 0);
    } else if (isLoaded) {
      warm?.used(item.slot);
      if (this.#settings.verifyReads && item.checkedLater !== true) this.proofs?.read(item.slot);
    }
    if (result.outcome === Outcome.TIMED_OUT) this.#timedOut += 1;
    this.#underWay -= 1;
    this.#locks.release(item.slot, kind);
    request.end(result);
    if (this.#underWay === 0) this.#onIdle();
  }
}
