/**
 * What makes a restart warm, while the store runs: the table of what lies in every slot, marks of the regions
 * that are written, durability points, and checkpoints, which write the table to the index file and so make
 * the marks needless.
 *
 *     write:       mark the region -> write the record -> note it in the table -> (a durability point)
 *     checkpoint:  begin an epoch -> its marks -> durability point -> changed SLOT blocks -> fdatasync
 *                  -> DONE -> fdatasync
 *
 * A checkpoint runs beside writes: a slot that is written meanwhile lies in a region that the new epoch has
 * marked, so whatever the checkpoint says of it counts for nothing.
 */

import { invariant } from '../../../runtime/errors.ts';
import type { StoreItem } from '../../../runtime/tier/tierStore.ts';
import { type DataFile, errnoOf } from '../io/dataFile.ts';
import { IoWatch } from '../io/ioWatch.ts';
import { type FileLayout, pageOf } from '../record/fileLayout.ts';
import type { RecordFamily } from '../record/record.ts';
import { Durability, type DurabilitySettings } from './durability.ts';
import { CheckpointWriter } from './indexFile/checkpointWriter.ts';
import { type DoneFacts, ENTRY_WORDS, type IndexGeometry, regionOf } from './indexFile/indexBlocks.ts';
import type { RegionBits } from './indexFile/regionBits.ts';
import { RegionMarks } from './regionMarks.ts';
import type { SlotTable } from './slotTable.ts';

export interface WarmSettings extends DurabilitySettings {
  /** A checkpoint follows after so many bytes were written. */
  readonly checkpointBytes: number;
  readonly deadlineMs: number;
}

export interface WarmParts {
  readonly blocks: DataFile;
  readonly index: DataFile;
  readonly layout: FileLayout;
  readonly geometry: IndexGeometry;
  readonly family: RecordFamily;
  readonly table: SlotTable;
  /** Regions that are marked in the file already, and the newest epoch of their marks. */
  readonly marked: RegionBits;
  readonly markEpoch: number;
  readonly done: DoneFacts;
  /** Number of the last record on disk. */
  readonly sequence: number;
  readonly settings: WarmSettings;
}

/** A checkpoint is worth its bytes once so many times as many were written since the last. */
const BYTES_PER_CHECKPOINT_BYTE = 32;

export class WarmState {
  readonly #parts: Omit<WarmParts, 'blocks'>;
  readonly #table: SlotTable;
  readonly #marks: RegionMarks;
  readonly #durability: Durability;
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

  constructor(parts: WarmParts) {
    this.#watch = new IoWatch(parts.settings.deadlineMs);
    const index = this.#watch.wrap(parts.index);
    this.#parts = { ...parts, index };
    this.#table = parts.table;
    this.#marks = new RegionMarks(index, parts.geometry, parts.family.store, parts.markEpoch);
    this.#marks.restore(parts.marked);
    this.#writer = new CheckpointWriter(index, parts.geometry, parts.family.store, parts.table);
    this.#done = parts.done;
    this.#sequence = parts.sequence;
    this.#multiClass = parts.layout.shape.slotBytes.length > 1;
    this.#durability = new Durability([this.#watch.wrap(parts.blocks), index], parts.settings, (error) => {
      if (error !== undefined) this.#failed(error);
    });
  }

  get table(): SlotTable {
    return this.#table;
  }

  /** Number of the next record written. */
  nextSequence(): number {
    return ++this.#sequence;
  }

  sequenceOf(slot: number): number {
    return this.#table.sequenceOf(slot);
  }

  /**
   * The slots are about to be written; `end` says for each that it is over.
   * @returns fulfilled once they may be; rejected with the errno as `code` when they may not; undefined when
   * they may at once
   */
  begin(items: readonly StoreItem[]): Promise<void> | undefined {
    for (const { slot, sizeClass } of items) this.#forgetReplaced(slot, sizeClass);
    const { layout, geometry } = this.#parts;
    const marked = this.#marks.begin(items.map(({ slot }) => regionOf(layout, geometry, slot)));
    if (marked === undefined) return undefined;
    marked.catch((error: unknown) => this.#failed(error));
    return this.#watch.within(marked);
  }

  /** @param sequence number of the record where it was written, 0 where it was not */
  end(item: StoreItem, sequence: number): void {
    const { layout, geometry } = this.#parts;
    this.#marks.end(regionOf(layout, geometry, item.slot));
    if (sequence === 0) return;
    const { tokens = 0, parent } = item;
    this.#table.set({ ...item, tokens, parent, sequence, lastUse: this.#sequence });
    const { recordBytes } = layout.records[item.sizeClass];
    this.#writtenBytes += recordBytes;
    this.#durability.wrote(recordBytes);
    this.#checkpointIfWorth();
  }

  used(slot: number): void {
    this.#table.use(slot, this.#sequence);
    this.#used = true;
  }

  /** What lies in the slot is not what was written: the next start does not find it. */
  spoiled(slot: number): void {
    this.#table.clear(slot);
  }

  /** Fulfilled when every write that has ended is durable. @throws with the errno as `code` */
  sync(): Promise<void> {
    return this.#durability.sync();
  }

  /** Writes a checkpoint, or joins the one that is being written. @throws with the errno as `code` */
  checkpoint(): Promise<void> {
    this.#checkpointing ??= this.#checkpoint(false).finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  /** The store is opened for writing: from here on damage may be the trace of a crash. */
  async open(): Promise<void> {
    if (!this.#done.closed) return;
    await this.#writeDone({ ...this.#done, closed: false });
    // Before any mark, so that no crash leaves marks in a store that seems closed.
    await this.#parts.index.sync();
  }

  /** With nothing in flight: leaves all durable and nothing marked, so the next start reads no record. */
  async close(): Promise<void> {
    await this.#checkpointing?.catch(() => {});
    this.#durability.stop();
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
      records: this.#table.records,
      epoch: this.#done.epoch,
      markedRegions: this.#marks.count,
      checkpoints: this.#checkpoints,
      durabilityPoints: this.#durability.points,
      unsyncedBytes: this.#durability.unsyncedBytes,
      indexBytes: this.#parts.geometry.fileBytes,
      indexStuck: this.#watch.overdue,
      indexErrors: this.#failures,
      indexLastError: this.#lastError,
    };
  }

  /** For tests, while nothing is in flight. @throws when table and marks disagree */
  checkIntegrity(): void {
    let records = 0;
    for (const slot of this.#table.byLastUse()) {
      const entry = this.#table.entry(slot);
      invariant(Math.max(entry.sequence, entry.lastUse) <= this.#sequence, 'nothing is of the future');
      records++;
    }
    invariant(records === this.#table.records, 'the table counts its records');
  }

  /**
   * Forgets what a write to the slot replaces: its old record and, if the write cuts the page anew, the
   * records of other size classes in the page.
   */
  #forgetReplaced(slot: number, sizeClass: number): void {
    this.#table.clear(slot);
    if (!this.#multiClass) return;
    const { layout } = this.#parts;
    const { slotsPerPageMax } = layout.shape;
    const first = pageOf(layout, slot) * slotsPerPageMax;
    for (let other = first; other < first + slotsPerPageMax; other++) {
      if (this.#table.sequenceOf(other) !== 0 && this.#table.sizeClassOf(other) !== sizeClass) {
        this.#table.clear(other);
      }
    }
  }

  #checkpointIfWorth(): void {
    const checkpointed = this.#table.records * ENTRY_WORDS * 4 * BYTES_PER_CHECKPOINT_BYTE;
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
    // An epoch that failed half-way is finished rather than skipped: the half of the one before must stay
    // whole.
    await (this.#marks.epoch === epoch ? this.#marks.writeAll() : this.#marks.advance(epoch));
    await this.#durability.sync();
    if (closing) this.#table.makeStale(epoch % 2);
    const slotBlocks = await this.#writer.writeSlots(epoch);
    await index.sync();
    await this.#writeDone({
      epoch,
      sequence: this.#sequence,
      records: this.#table.records,
      closed: closing && this.#marks.isEmpty,
      slotBlocks,
    });
    await index.sync();
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
