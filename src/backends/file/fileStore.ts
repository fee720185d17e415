/**
 * The NVMe tier: one preallocated file of self-describing records, each slot's at its own place (fileLayout.ts,
 * record.ts). A request goes through three stations, and its slot stays taken until it leaves the last:
 *
 *     call -> SlotOrder (its turn on the slot) -> ledger (stale? missing?) -> IoQueue (depth, deadline) -> end
 *
 * - What was never written by this store is `missing` without looking at the file.
 * - Every read is checked: the whole header against the item, then the digest of the payload.
 * - Errors of the disk are outcomes. After a failed write the slot holds nothing; a failed read changes nothing.
 * - An I/O past its deadline ends as `timedOut`, but only when it retires; until then it shows in `describe().stuck`.
 */

import { dirname, join } from 'node:path';
import { invariant, requireInteger } from '../../runtime/errors.ts';
import type { PoolShape } from '../../runtime/pool/shape.ts';
import { Tier } from '../../runtime/tier.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { refused, SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import type { StoreItem, StoreResult, TierStore } from '../../runtime/transfer/tierStore.ts';
import { startsAtPage } from '../memory/index.ts';
import { type Libc, loadLibc } from '../posix/index.ts';
import { errnoOf } from './dataFile.ts';
import { dirError } from './fileErrors.ts';
import { type FileLayout, fileLayout, recordOffset } from './fileLayout.ts';
import {
  checkedOptions,
  type FileStoreOptions,
  type FileStoreSettings,
  type StuckIo,
} from './fileStoreOptions.ts';
import { IoQueue } from './ioQueue.ts';
import { bytesOnDisk, type OpenedFile, openDataFile } from './openFile.ts';
import { BLOCK_BYTES } from './record.ts';
import { disposed, RecordRun, type RunContext } from './recordRun.ts';
import { SlotOrder, type SlotRequest } from './slotOrder.ts';
import type { SlotEntry } from './slotTable.ts';
import { StagingPool } from './stagingPool.ts';
import { INDEX_NAME } from './storeFiles.ts';

const STAGING_BYTES_MIN = 16 * 1024 * 1024;
/** One vectored call takes at most 1,024 parts, and a record is two. */
const RECORDS_PER_RUN_MAX = 256;

export class FileStore implements TierStore {
  readonly tier: Tier = Tier.NVME;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'] = { onWrite: false, onRead: true };
  readonly #opened: OpenedFile;
  readonly #settings: FileStoreSettings;
  readonly #onStuck: (stuck: StuckIo) => void;
  readonly #libc: Libc | undefined;
  readonly #layout: FileLayout;
  readonly #staging: StagingPool;
  readonly #queue: IoQueue;
  readonly #ledger: SlotLedger;
  readonly #order: SlotOrder = new SlotOrder();
  readonly #context: RunContext;
  #drainScheduled = false;
  #sequence = 0;
  #outstanding = 0;
  #ioErrors = 0;
  #lastError = '';
  #timedOut = 0;
  #onIdle: () => void = () => {};
  #disposing: Promise<void> | undefined;

  private constructor(
    opened: OpenedFile,
    layout: FileLayout,
    settings: FileStoreSettings,
    staging: StagingPool,
    libc: Libc | undefined,
    onStuck: (stuck: StuckIo) => void,
  ) {
    this.capacityBytes = layout.shape.capacityBytes;
    this.#opened = opened;
    this.#layout = layout;
    this.#settings = settings;
    this.#staging = staging;
    this.#libc = libc;
    this.#onStuck = onStuck;
    this.#queue = new IoQueue(settings.queueDepth, settings.deadlineMs);
    this.#ledger = new SlotLedger(layout.shape);
    for (const record of this.records()) {
      this.#ledger.take(record);
      this.#ledger.fill(record);
    }
    this.#context = {
      file: opened.file,
      extents: opened.extents,
      staging,
      layout,
      family: opened.family,
      pieceBytes: settings.pieceBytes,
      piecesAtOnce: Math.ceil(settings.queueDepth / 2), // so that one record that hangs leaves room for others
      nextSequence: () => opened.warm?.nextSequence() ?? ++this.#sequence,
      sequenceOf: (slot) => opened.warm?.sequenceOf(slot) ?? 0,
      spoiled: (slot) => opened.warm?.spoiled(slot),
      finish: (request, result) => this.#finish(request, result),
      retry: (requests) => {
        for (const request of requests) this.#queue.push(new RecordRun(this.#context, [request]));
      },
      stuck: (run, retired) =>
        this.#onStuck({ operation: run.kind, slots: run.requests.map((one) => one.item.slot), retired }),
      failed: (errno) => {
        this.#ioErrors += 1;
        this.#lastError = errno;
      },
    };
  }

  /**
   * Opens the directory for this process alone, and begins empty or, with `restart: 'warm'`, with what is there.
   * @throws TKV_CONFIG for an option or the shape; with field `dir`: TKV_IO, TKV_LOCKED when another process owns it,
   * TKV_MISMATCH when it holds a file that is not ours; TKV_MISMATCH with the part of the identity that differs as field
   * when a warm restart finds blocks of another meaning.
   */
  static async open(dir: string, shape: PoolShape, options: FileStoreOptions = {}): Promise<FileStore> {
    const settings = checkedOptions(options);
    requireInteger('pages', shape.pages, 1);
    const layout = fileLayout(shape);
    const libc = settings.native ? await loadLibc() : 'native calls are switched off';
    const recordBytesMax = Math.max(...layout.records.map((record) => record.recordBytes));
    const runBytesMax = Math.max(recordBytesMax, settings.coalescedBytes);
    const stagingBytes = Math.max(STAGING_BYTES_MIN, 4 * runBytesMax);
    const staging = await StagingPool.open(stagingBytes, settings.native);
    try {
      const wrapFile = options.wrapFile ?? ((file) => file);
      const wrapDirectory = options.wrapDirectory ?? ((ops) => ops);
      const opened = await openDataFile({ dir, layout, settings, staging, libc, wrapFile, wrapDirectory });
      const native = typeof libc === 'string' ? undefined : libc;
      return new FileStore(opened, layout, settings, staging, native, options.onStuck ?? (() => {}));
    } catch (error) {
      staging[Symbol.dispose]();
      throw error;
    }
  }

  /** `stuck` counts I/Os past their deadline that have not retired; while it is above 0 the tier is degraded. */
  describe(): Record<string, string | number | boolean> {
    const { path, facts, extents } = this.#opened;
    return {
      store: 'file',
      path,
      ...facts,
      allocation: this.#settings.allocation,
      fileBytesMax: this.#layout.fileBytes,
      allocatedBytes: extents.allocatedBytes,
      alignmentBytes: BLOCK_BYTES,
      queueDepth: this.#settings.queueDepth,
      deadlineMs: this.#settings.deadlineMs,
      stuck: this.#queue.overdue,
      timedOut: this.#timedOut,
      ioErrors: this.#ioErrors,
      lastError: this.#lastError,
      physicalBytes: bytesOnDisk(path) + bytesOnDisk(join(dirname(path), INDEX_NAME)),
      ...describeWarm(this.#opened),
    };
  }

  /**
   * What lies in the slots, the record used longest ago first: right after the open that is what an earlier run left. None
   * where restarts are empty.
   */
  records(): SlotEntry[] {
    const table = this.#opened.warm?.table;
    return table === undefined ? [] : Array.from(table.byLastUse(), (slot) => table.entry(slot));
  }

  /**
   * Fulfilled when every write that had ended before the call would survive a loss of power. At once where restarts are empty.
   * @throws TKV_IO when the disk refuses
   */
  async sync(): Promise<void> {
    try {
      await this.#opened.warm?.sync();
    } catch (error) {
      throw dirError(dirname(this.#opened.path), 'making writes durable', error);
    }
  }

  write(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    return this.#submit('write', items);
  }

  read(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    return this.#submit('read', items);
  }

  /**
   * Refuses what has not begun, waits for what has, and gives the directory back. An I/O that does not retire within the
   * deadline keeps file, memory and lock until it does, but not the caller.
   */
  [Symbol.asyncDispose](): Promise<void> {
    this.#disposing ??= this.#dispose();
    return this.#disposing;
  }

  /** Writes a checkpoint now, so that a start after a crash would read nothing that was written before. @throws TKV_IO */
  async checkpoint(): Promise<void> {
    try {
      await this.#opened.warm?.checkpoint();
    } catch (error) {
      throw dirError(dirname(this.#opened.path), 'writing a checkpoint', error);
    }
  }

  /** @throws an invariant when requests, staging and queue disagree. For tests, while nothing is in flight. */
  checkIntegrity(): void {
    invariant(this.#outstanding === 0 && this.#order.size === 0, 'requests are still under way');
    this.#staging.checkIntegrity();
    this.#opened.warm?.checkIntegrity();
  }

  async #dispose(): Promise<void> {
    this.#queue.giveUpWaiting('closed');
    const idle = new Promise<void>((resolve) => {
      this.#onIdle = resolve;
      if (this.#outstanding === 0) resolve();
    });
    const closed = idle.then(async () => {
      await this.#opened.warm?.close();
      await this.#opened.close().catch((error: unknown) => this.#context.failed(errnoOf(error)));
      this.#staging[Symbol.dispose]();
    });
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, this.#settings.deadlineMs);
    });
    await Promise.race([closed, patience]);
    clearTimeout(timer);
  }

  #submit(kind: SlotRequest['kind'], items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    if (items.length === 0) return Promise.resolve([]);
    if (this.#disposing !== undefined) return Promise.resolve(items.map(() => disposed));
    return new Promise((resolve) => {
      const results = new Array<StoreResult>(items.length);
      let left = items.length;
      this.#outstanding += items.length;
      items.forEach((item, index) => {
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

  #drain(): void {
    const reads: SlotRequest[] = [];
    const writes: SlotRequest[] = [];
    for (const request of this.#order.takeReady()) {
      const refusal = this.#refusal(request);
      if (refusal !== undefined) {
        this.#finish(request, refusal);
        continue;
      }
      const { slot, sizeClass } = request.item;
      request.offset = recordOffset(this.#layout, slot, sizeClass);
      if (request.kind === 'write') this.#ledger.take(request.item);
      (request.kind === 'write' ? writes : reads).push(request);
    }
    this.#begin(reads);
    this.#beginWrites(writes);
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
        if (this.#disposing === undefined) this.#begin(writes);
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
    if (this.#disposing !== undefined) return disposed;
    const refusal = kind === 'write' ? this.#ledger.refuseWrite(item) : this.#ledger.refuseRead(item);
    if (refusal !== undefined) return refusal;
    const slotBytes = this.#layout.shape.slotBytes[item.sizeClass]!;
    if (item.bytes.byteLength === slotBytes) return undefined;
    return refused(`${item.bytes.byteLength} bytes for a slot of ${slotBytes}`);
  }

  /** Sends the requests to the queue, those on neighbouring records together. */
  #begin(requests: SlotRequest[]): void {
    requests.sort((a, b) => a.offset - b.offset);
    let run: SlotRequest[] = [];
    let runBytes = 0;
    for (const request of requests) {
      const bytes = this.#layout.records[request.item.sizeClass]!.recordBytes;
      const touches = run.length > 0 && run[0]!.offset + runBytes === request.offset;
      const fits = runBytes + bytes <= this.#settings.coalescedBytes && run.length < RECORDS_PER_RUN_MAX;
      if (run.length > 0 && !(touches && fits)) {
        this.#queue.push(new RecordRun(this.#context, run));
        run = [];
        runBytes = 0;
      }
      run.push(request);
      runBytes += bytes;
    }
    if (run.length > 0) this.#queue.push(new RecordRun(this.#context, run));
  }
}

/** How the start went and where the index stands. */
function describeWarm({ warm, recovered }: OpenedFile): Record<string, string | number | boolean> {
  if (warm === undefined || recovered === undefined) return { restart: 'empty' };
  return {
    restart: 'warm',
    recoveredFrom: recovered.indexProblem === '' ? 'checkpoint' : `all records: ${recovered.indexProblem}`,
    recoveredClosed: recovered.closed,
    recoveryReadBytes: recovered.bytesRead,
    recoveryReadRegions: recovered.regionsRead,
    recoveryLeftovers: recovered.leftovers.length,
    ...warm.describe(),
  };
}
