/**
 * Makes restarts warm: recovers the records at the start, and while the store runs keeps the slot table, the
 * marks of written regions, durability points and checkpoints. A checkpoint writes the table to the index
 * file, so that the marks before it are no longer needed.
 *
 *     write:       mark the region -> write the record -> note it in the table -> (a durability point)
 *     checkpoint:  begin an epoch -> its marks -> durability point -> changed SLOT blocks -> fdatasync
 *                  -> DONE -> fdatasync
 *
 * Writes go on during a checkpoint. A slot that is written meanwhile lies in a region that the new epoch has
 * marked, so its entry in the checkpoint is not used.
 */

import { invariant } from '../../runtime/errors.ts';
import type { StoreItem } from '../../runtime/tier/tierStore.ts';
import { letProcessEnd } from '../runningClock.ts';
import { type DataFile, errnoOf, type RangedFile } from './dataFile.ts';
import {
  bytesOf,
  type DoneFacts,
  ENTRIES_PER_BLOCK,
  ENTRY_WORDS,
  geometryOf,
  headBlock,
  type IndexGeometry,
  RegionBits,
  regionOf,
} from './indexBlocks.ts';
import { CheckpointWriter, type LoadedIndex, loadIndex, writtenRegions } from './indexFile.ts';
import { IoWatch, type StagingPool } from './ioQueue.ts';
import { type FileLayout, pageAt, pageOf, type RecordFamily, recordOffset } from './record.ts';
import { type FoundRecord, RecordScan } from './recordIo.ts';
import { RegionMarks, SharedRun, SlotTable } from './slotTable.ts';

interface WarmSettings extends DurabilitySettings {
  /** Bytes written after which a checkpoint is taken. */
  readonly checkpointBytes: number;
  readonly deadlineMs: number;
  readonly onPoint?: ((errno: string | undefined) => void) | undefined;
}

interface WarmParts {
  readonly blocks: DataFile;
  readonly index: DataFile;
  readonly layout: FileLayout;
  readonly geometry: IndexGeometry;
  readonly family: RecordFamily;
  readonly table: SlotTable;
  /** Regions that are already marked in the file; `markEpoch` is the newest epoch of their marks. */
  readonly marked: RegionBits;
  readonly markEpoch: number;
  readonly done: DoneFacts;
  /** Number of the newest record on disk. */
  readonly sequence: number;
  readonly settings: WarmSettings;
}

/**
 * Bytes written since the last checkpoint, for each byte of a checkpoint, before the next one is worth it.
 */
const BYTES_PER_CHECKPOINT_BYTE = 32;

export class WarmState {
  readonly #parts: Omit<WarmParts, 'blocks'>;
  readonly table: SlotTable;
  readonly #marks: RegionMarks;
  readonly durability: Durability;
  readonly #writer: CheckpointWriter;
  readonly #watch: IoWatch;
  readonly #multiClass: boolean;
  #done: DoneFacts;
  #sequence: number;
  #writtenBytes = 0;
  #used = false;
  #checkpoints = 0;
  #checkpointing: Promise<void> | undefined;
  #failures = 0;
  #lastError = '';
  #marksInDoubt = false;

  constructor(parts: WarmParts) {
    this.#watch = new IoWatch(parts.settings.deadlineMs);
    const watched = this.#watch.wrap(parts.index);
    const index: DataFile = {
      ...watched,
      sync: async () => {
        try {
          await watched.sync();
        } catch (error) {
          this.#indexInDoubt();
          throw error;
        }
      },
    };
    this.#parts = { ...parts, index };
    this.table = parts.table;
    this.#marks = new RegionMarks(index, parts.geometry, parts.family.store, parts.markEpoch);
    this.#marks.restore(parts.marked);
    this.#writer = new CheckpointWriter(index, parts.geometry, parts.family.store, parts.table);
    this.#done = parts.done;
    this.#sequence = parts.sequence;
    this.#multiClass = parts.layout.shape.slotBytes.length > 1;
    this.durability = new Durability([this.#watch.wrap(parts.blocks), index], parts.settings, (error) => {
      if (error !== undefined) this.#failed(error);
      parts.settings.onPoint?.(error === undefined ? undefined : errnoOf(error));
    });
    this.durability.follow({
      mend: async () => {
        if (!this.#marksInDoubt) return;
        this.#marksInDoubt = false; // a sync that fails meanwhile sets it again
        await this.#marks.writeAll().catch((error: unknown) => {
          this.#marksInDoubt = true;
          throw error;
        });
      },
      syncBegins() {},
      syncEnded() {},
    });
  }

  /** A sync of the index failed: all of it that was written counts as not written. */
  #indexInDoubt(): void {
    this.#marksInDoubt = true;
    this.#marks.forgetWritten();
    for (const half of [0, 1]) this.table.makeStale(half);
  }

  /** Draws the number of the next record written. */
  nextSequence(): number {
    return ++this.#sequence;
  }

  /**
   * Announces writes to the slots; `end` must follow each of them.
   * @returns fulfilled once they may begin, rejected with the errno as `code` if they must not; undefined if
   * they may begin at once
   */
  begin(items: readonly StoreItem[]): Promise<void> | undefined {
    for (const { slot, sizeClass } of items) this.#forgetReplaced(slot, sizeClass);
    const { layout, geometry } = this.#parts;
    const marked = this.#marks.begin(items.map(({ slot }) => regionOf(layout, geometry, slot)));
    if (marked === undefined) return undefined;
    marked.catch((error: unknown) => this.#failed(error));
    return this.#watch.within(marked);
  }

  /** @param sequence number of the record that was written, 0 if the write failed */
  end(item: StoreItem, sequence: number): void {
    const { layout, geometry } = this.#parts;
    this.#marks.end(regionOf(layout, geometry, item.slot));
    if (sequence === 0) return;
    const { tokens = 0, parent } = item;
    this.table.set({ ...item, tokens, parent, sequence, lastUse: this.#sequence });
    const { recordBytes } = layout.records[item.sizeClass];
    this.#writtenBytes += recordBytes;
    this.durability.wrote(recordBytes);
    this.#checkpointIfWorth();
  }

  used(slot: number): void {
    this.table.use(slot, this.#sequence);
    this.#used = true;
  }

  /**
   * Drops the slot's entry, since it holds other bytes than were written. The next start does not find it.
   */
  spoiled(slot: number): void {
    this.table.clear(slot);
  }

  /** Writes a checkpoint, or joins one under way. @throws with the errno as `code` */
  checkpoint(): Promise<void> {
    this.#checkpointing ??= this.#checkpoint(false).finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  /** Marks the store as open: from here on damage may be the trace of a crash. */
  async open(): Promise<void> {
    if (!this.#done.closed) return;
    await this.#writeDone({ ...this.#done, closed: false });
    // Durable before any mark, so that no crash leaves marks in a store that seems closed.
    await this.#parts.index.sync();
  }

  /**
   * Makes all durable and leaves no marks, so that the next start reads no record. No I/O may be in flight.
   */
  async close(): Promise<void> {
    await this.#checkpointing?.catch(() => {});
    this.durability.stop();
    try {
      if (this.#used || !this.#marks.isEmpty) await this.#checkpoint(true);
      else {
        await this.#writeDone({ ...this.#done, closed: true });
        await this.#parts.index.sync();
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  describe(): Record<string, string | number | boolean> {
    return {
      records: this.table.records,
      epoch: this.#done.epoch,
      markedRegions: this.#marks.count,
      checkpoints: this.#checkpoints,
      durabilityPoints: this.durability.points,
      unsyncedBytes: this.durability.unsyncedBytes,
      indexBytes: this.#parts.geometry.fileBytes,
      indexStuck: this.#watch.overdue,
      indexErrors: this.#failures,
      indexLastError: this.#lastError,
    };
  }

  /** For tests, while nothing is in flight. @throws an invariant if the table is inconsistent */
  checkIntegrity(): void {
    let records = 0;
    for (const slot of this.table.byLastUse()) {
      const entry = this.table.entry(slot);
      invariant(
        Math.max(entry.sequence, entry.lastUse) <= this.#sequence,
        'a record must not be of the future',
      );
      records++;
    }
    invariant(records === this.table.records, 'the table must count its records');
  }

  /**
   * Drops the entries that a write to the slot replaces: its own and, if the write gives the page another
   * size class, all entries of other classes in the page.
   */
  #forgetReplaced(slot: number, sizeClass: number): void {
    this.table.clear(slot);
    if (!this.#multiClass) return;
    const { layout } = this.#parts;
    const { slotsPerPageMax } = layout.shape;
    const first = pageOf(layout, slot) * slotsPerPageMax;
    for (let other = first; other < first + slotsPerPageMax; other++) {
      if (this.table.sequenceOf(other) !== 0 && this.table.sizeClassOf(other) !== sizeClass) {
        this.table.clear(other);
      }
    }
  }

  #checkpointIfWorth(): void {
    const checkpointed = this.table.records * ENTRY_WORDS * 4 * BYTES_PER_CHECKPOINT_BYTE;
    if (this.#writtenBytes < Math.max(this.#parts.settings.checkpointBytes, checkpointed)) return;
    if (this.#checkpointing === undefined) this.checkpoint().catch(() => {});
  }

  async #checkpoint(closing: boolean): Promise<void> {
    this.#writtenBytes = 0;
    try {
      await this.#writeCheckpoint(closing);
    } catch (error) {
      this.#failed(error);
      throw error;
    }
  }

  async #writeCheckpoint(closing: boolean): Promise<void> {
    const { index } = this.#parts;
    const epoch = this.#done.epoch + 1;
    // An epoch that failed half-way is finished, not skipped: the next one would overwrite the half that is
    // whole.
    await (this.#marks.epoch === epoch ? this.#marks.writeAll() : this.#marks.advance(epoch));
    await this.durability.sync();
    if (closing) this.table.makeStale(epoch % 2);
    const slotBlocks = await this.#writer.writeSlots(epoch);
    await index.sync();
    const before = this.#done;
    await this.#writeDone({
      epoch,
      sequence: this.#sequence,
      records: this.table.records,
      closed: closing && this.#marks.isEmpty,
      slotBlocks,
    });
    try {
      await index.sync();
    } catch (error) {
      this.#done = before; // the same epoch is written once more
      throw error;
    }
    this.#checkpoints++;
  }

  async #writeDone(done: DoneFacts): Promise<void> {
    await this.#writer.writeDone(done);
    this.#done = done;
  }

  #failed(error: unknown): void {
    this.#failures++;
    this.#lastError = errnoOf(error);
  }
}

// ---- start: recovery, then an index file that lists the recovered records and has no marks

/**
 * More records than any run writes between two checkpoints. A loss of power may undo marks and still leave
 * records that were written after them. So unless the store was closed, record numbers continue this far
 * above the highest one found, and that is durable before the first is used. Else a record of the lost run
 * could seem newer than a record of this run in the same page.
 */
const UNSEEN_RECORDS = 2 ** 32;

interface WarmStartRequest {
  readonly blocks: RangedFile;
  readonly layout: FileLayout;
  readonly family: RecordFamily;
  readonly settings: WarmSettings;
  readonly staging: StagingPool;
  /** The index file of the store; 'none' if an existing store lacks it, 'new' if the store is new. */
  readonly kept: RangedFile | 'none' | 'new';
  /** Told when all is read: from then on it writes. */
  readonly writes: () => void;
  /** Makes an empty index file under a preliminary name. */
  readonly create: () => Promise<DataFile>;
}

export interface WarmStarted {
  readonly warm: WarmState;
  readonly recovered: Recovered;
  readonly index: DataFile;
  /** Whether the index file is new and still has its preliminary name. */
  readonly created: boolean;
}

export async function warmStart(request: WarmStartRequest): Promise<WarmStarted> {
  const { blocks, layout, family, settings, staging, kept } = request;
  const old = typeof kept === 'string' ? undefined : kept;
  const recovered =
    kept === 'new' ? nothingRecovered(layout) : await recover(blocks, old, layout, family, staging);
  request.writes();
  const geometry = geometryOf(layout);
  const reuse = old !== undefined && recovered.indexProblem === '' && isSame(geometry, recovered.geometry);
  const { table } = recovered;
  const sequence = recovered.sequence + (kept === 'new' || recovered.closed ? 0 : UNSEEN_RECORDS);
  const parts = { blocks: blocks.file, layout, geometry, family, table, sequence, settings };

  if (reuse) {
    const { epoch, markEpoch, marked, closed, slotBlocks } = recovered;
    const done = { epoch, sequence: recovered.sequence, records: table.records, closed, slotBlocks };
    const warm = new WarmState({ ...parts, index: old.file, marked, markEpoch, done });
    await warm.open();
    // Two checkpoints if the crash interrupted one: the first finishes its epoch, the second begins an epoch
    // without marks.
    if (!closed || !marked.isEmpty) await warm.checkpoint();
    if (markEpoch > epoch) await warm.checkpoint();
    return { warm, recovered, index: old.file, created: false };
  }

  await old?.file.close();
  const index = await request.create();
  await index.allocate(0, geometry.fileBytes);
  await index.writev([bytesOf(headBlock(geometry, family.store))], 0);
  for (const half of [0, 1]) table.makeStale(half);
  const done = { epoch: 0, sequence, records: 0, closed: false, slotBlocks: 0 };
  const warm = new WarmState({ ...parts, index, marked: new RegionBits(), markEpoch: 0, done });
  await warm.checkpoint();
  return { warm, recovered, index, created: true };
}

function isSame(a: IndexGeometry, b: IndexGeometry): boolean {
  return a.pages === b.pages && a.slotsPerPageMax === b.slotsPerPageMax && a.regionPages === b.regionPages;
}

// ---- recovery from a directory that was used before
//
// Entries of unmarked regions come from the checkpoint; records of marked regions are read and checked. So
// every entry is either durable and untouched since the checkpoint, or was just checked. The time grows with
// the bytes written after the checkpoint, not with the size of the store.

/** Result of recovery: the checkpoint, updated by the records read in marked regions. */
export interface Recovered extends LoadedIndex {
  /** Why the index could not be used; empty if it could. */
  readonly indexProblem: string;
  /** Broken records in marked regions: writes that a crash interrupted. */
  readonly leftovers: readonly FoundRecord[];
  readonly regionsRead: number;
  readonly bytesRead: number;
}

/** Pages read at once: staging memory is enough for three. */
const READERS = 3;

/** @param index undefined if the index file is missing */
export async function recover(
  blocks: RangedFile,
  index: RangedFile | undefined,
  layout: FileLayout,
  family: RecordFamily,
  staging: StagingPool,
): Promise<Recovered> {
  const loaded =
    index === undefined ? 'the index file is missing' : await loadIndex(index, layout, family.store);
  const lost = typeof loaded === 'string';
  const known: Recovered = {
    ...nothingRecovered(layout),
    ...(lost ? { marked: writtenRegions(blocks.ranges, layout), indexProblem: loaded } : loaded),
  };
  const { geometry, table, marked } = known;

  const pagesInFile = Math.min(layout.shape.pages, pageAt(layout, blocks.ranges.fileBytes - 1) + 1);
  const slotsInTable = table.blocks * ENTRIES_PER_BLOCK;
  const pages = Math.max(pagesInFile, Math.ceil(slotsInTable / geometry.slotsPerPageMax));
  const scan = new RecordScan(blocks, layout, family, staging);
  const leftovers: FoundRecord[] = [];
  let { sequence } = known;
  let regionsRead = 0;
  const regions = marked.below(Math.min(geometry.regions, Math.ceil(pages / geometry.regionPages)));
  const reader = async (): Promise<void> => {
    for (const region of regions) {
      regionsRead++;
      const first = region * geometry.regionPages;
      const end = Math.min(first + geometry.regionPages, geometry.pages);
      const slotEnd = Math.min(end * geometry.slotsPerPageMax, slotsInTable);
      for (let slot = first * geometry.slotsPerPageMax; slot < slotEnd; slot++) table.clear(slot);
      for (let page = first; page < Math.min(end, pagesInFile); page++) {
        const at = recordOffset(layout, page * geometry.slotsPerPageMax, 0);
        page += Math.floor((blocks.ranges.next(at) - at) / layout.pageStrideBytes);
        if (page >= Math.min(end, pagesInFile)) break;
        for (const record of await scan.page(page)) {
          sequence = Math.max(sequence, record.sequence);
          if (record.problem === '') table.set({ ...record, lastUse: record.sequence });
          else leftovers.push(record);
        }
      }
    }
  };
  await Promise.all(Array.from({ length: READERS }, reader));
  table.truncate(layout.shape.slotLimit);

  return { ...known, sequence, leftovers, regionsRead, bytesRead: scan.bytesRead };
}

/** The result for a store that was just created. */
function nothingRecovered(layout: FileLayout): Recovered {
  return {
    geometry: geometryOf(layout),
    table: new SlotTable(),
    marked: new RegionBits(),
    epoch: 0,
    markEpoch: 0,
    sequence: 0,
    closed: false,
    records: 0,
    slotBlocks: 0,
    indexProblem: '',
    indexFaults: [],
    leftovers: [],
    regionsRead: 0,
    bytesRead: 0,
  };
}

// ---- durability points: one fdatasync for many writes
//
// A record survives a loss of power once a point that began after its write has ended. After a sync that failed the system may
// have dropped what was to be synced and say yes to the next one: so its records and marks are written again before any
// further point. A crash of the process alone loses no written record. A point is taken when `syncBytes` were written, when the oldest of them has
// waited `syncMs`, and when `sync` is called. Without writes no timer runs.

interface DurabilitySettings {
  readonly syncBytes: number;
  readonly syncMs: number;
}

/** A follower of durability points. */
interface PointFollower {
  /** Writes again what an earlier sync that failed may have lost. @throws with the errno as `code` */
  mend(): Promise<void>;
  syncBegins(): void;
  syncEnded(isDurable: boolean): void;
}

class Durability {
  readonly #files: readonly DataFile[];
  readonly #followers: PointFollower[] = [];
  readonly #settings: DurabilitySettings;
  readonly #ended: (error: unknown) => void;
  #unsyncedBytes = 0;
  readonly #point: SharedRun = new SharedRun(() => this.#takePoint());
  #timer: NodeJS.Timeout | undefined;
  #points = 0;

  /** @param ended called at the end of each point, with the disk's error or undefined */
  constructor(
    files: readonly DataFile[],
    settings: DurabilitySettings,
    ended: (error: unknown) => void = () => {},
  ) {
    this.#files = files;
    this.#settings = settings;
    this.#ended = ended;
  }

  /** Bytes written that no finished point covers yet. */
  get unsyncedBytes(): number {
    return this.#unsyncedBytes;
  }

  get points(): number {
    return this.#points;
  }

  follow(follower: PointFollower): void {
    this.#followers.push(follower);
  }

  wrote(bytes: number): void {
    this.#unsyncedBytes += bytes;
    if (this.#unsyncedBytes >= this.#settings.syncBytes) this.#take();
    else this.#arm();
  }

  /** Fulfilled when everything written before the call is durable. @throws with the errno as `code` */
  sync(): Promise<void> {
    return this.#point.ask();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** All of the files, or none counts. */
  async #syncAll(): Promise<void> {
    for (const follower of this.#followers) follower.syncBegins();
    const ends = await Promise.allSettled(this.#files.map((file) => file.sync()));
    const failed = ends.find((end) => end.status === 'rejected');
    for (const follower of this.#followers) follower.syncEnded(failed === undefined);
    if (failed !== undefined) throw failed.reason;
  }

  #arm(): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.#take(), this.#settings.syncMs);
    letProcessEnd(this.#timer);
  }

  /** Takes a point, unless a waiting point will cover everything written so far. */
  #take(): void {
    this.stop();
    if (!this.#point.isAwaited) this.sync().catch(() => {});
  }

  async #takePoint(): Promise<void> {
    this.stop();
    let covered = 0;
    try {
      for (const follower of this.#followers) await follower.mend();
      covered = this.#unsyncedBytes;
      await this.#syncAll();
    } catch (error) {
      this.#ended(error);
      throw error;
    }
    this.#unsyncedBytes -= covered;
    this.#points++;
    if (this.#unsyncedBytes > 0) this.#arm();
    this.#ended(undefined);
  }
}
