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

import { invariant, requireInteger } from '../../runtime/errors.ts';
import type { PoolShape } from '../../runtime/pool/shape.ts';
import { Tier } from '../../runtime/tier.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { refused, SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import type { StoreItem, StoreResult, TierStore } from '../../runtime/transfer/tierStore.ts';
import { startsAtPage } from '../memory/index.ts';
import { type Libc, loadLibc } from '../posix/index.ts';
import { errnoOf } from './dataFile.ts';
import { type FileLayout, fileLayout, recordOffset } from './fileLayout.ts';
import {
  checkedOptions,
  type FileStoreOptions,
  type FileStoreSettings,
  type StuckIo,
} from './fileStoreOptions.ts';
import { IoQueue } from './ioQueue.ts';
import { type OpenedFile, openDataFile } from './openFile.ts';
import { BLOCK_BYTES } from './record.ts';
import { disposed, RecordRun, type RunContext } from './recordRun.ts';
import { SlotOrder, type SlotRequest } from './slotOrder.ts';
import { StagingPool } from './stagingPool.ts';

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
    this.#context = {
      file: opened.file,
      extents: opened.extents,
      staging,
      layout,
      family: opened.family,
      nextSequence: () => ++this.#sequence,
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
   * Opens the directory for this process alone, and begins empty.
   * @throws TKV_CONFIG for an option or the shape; with field `dir`: TKV_IO, TKV_LOCKED when another process owns it,
   * TKV_MISMATCH when it holds a file that is not ours.
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
      const opened = await openDataFile({ dir, layout, settings, staging, libc, wrapFile });
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
    };
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

  /** @throws an invariant when requests, staging and queue disagree. For tests, while nothing is in flight. */
  checkIntegrity(): void {
    invariant(this.#outstanding === 0 && this.#order.size === 0, 'requests are still under way');
    this.#staging.checkIntegrity();
  }

  async #dispose(): Promise<void> {
    this.#queue.giveUpWaiting('closed');
    const idle = new Promise<void>((resolve) => {
      this.#onIdle = resolve;
      if (this.#outstanding === 0) resolve();
    });
    const closed = idle.then(async () => {
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
    if (request.kind === 'write' && result.outcome === Outcome.LOADED) this.#ledger.fill(request.item);
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
    this.#begin(writes);
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
