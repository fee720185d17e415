/**
 * A start on a directory that was used before: the checkpoint's table where nothing was written since, the
 * records themselves where something was. What comes out is what the next run may read; all of it is either
 * durable and untouched since the checkpoint, or was read and checked just now. The time it takes grows with
 * what was written between the checkpoint and the end, not with the store.
 */

import type { DataFile } from '../io/dataFile.ts';
import type { DataRanges } from '../io/dataRanges.ts';
import type { StagingPool } from '../io/stagingPool.ts';
import { type FileLayout, pageAt, recordOffset } from '../record/fileLayout.ts';
import type { RecordFamily } from '../record/record.ts';
import { type FoundRecord, RecordScan } from '../record/recordScan.ts';
import { ENTRIES_PER_BLOCK, geometryOf, type IndexGeometry } from './indexBlocks.ts';
import { type IndexFault, loadIndex, writtenRegions } from './indexFile.ts';
import { RegionBits } from './regionBits.ts';
import { SlotTable } from './slotTable.ts';

export interface Recovered {
  /** How the index file is cut; not the store's own after its size has changed. */
  readonly geometry: IndexGeometry;
  readonly table: SlotTable;
  /** Regions that were read. */
  readonly marked: RegionBits;
  readonly epoch: number;
  /** Epoch of the newest marks: one more than `epoch` when a checkpoint was begun and not finished. */
  readonly markEpoch: number;
  /** No record on disk has a higher number. */
  readonly sequence: number;
  /** The store was closed and not opened since, so everything in it should be right. */
  readonly closed: boolean;
  /** Records that the checkpoint counted. */
  readonly doneRecords: number;
  /** SLOT blocks of the checkpoint; 0 where not known. */
  readonly slotBlocks: number;
  /** Why the index could not be used at all; empty where it could. */
  readonly indexProblem: string;
  readonly indexFaults: readonly IndexFault[];
  /** Records in marked regions that are not whole: what a crash leaves of a write. */
  readonly leftovers: readonly FoundRecord[];
  readonly regionsRead: number;
  readonly bytesRead: number;
  readonly readErrors: number;
}

export interface RecoveryFiles {
  readonly blocks: DataFile;
  readonly blocksRanges: DataRanges;
  /** Undefined when there is none. */
  readonly index: { readonly file: DataFile; readonly ranges: DataRanges } | undefined;
}

/** Pages read at once: what staging memory is enough for. */
const READERS = 3;

export async function recover(
  files: RecoveryFiles,
  layout: FileLayout,
  family: RecordFamily,
  staging: StagingPool,
): Promise<Recovered> {
  const loaded =
    files.index === undefined
      ? 'there is no index file'
      : await loadIndex(files.index.file, files.index.ranges, layout, family.store);
  const lost = typeof loaded === 'string';
  const geometry = lost ? geometryOf(layout) : loaded.geometry;
  const table = lost ? new SlotTable() : loaded.table;
  const marked = lost ? writtenRegions(files.blocksRanges, layout) : loaded.marked;

  const { blocks, blocksRanges } = files;
  const pagesInFile = Math.min(layout.shape.pages, pageAt(layout, blocksRanges.fileBytes - 1) + 1);
  const slotsInTable = table.blocks * ENTRIES_PER_BLOCK;
  const pages = Math.max(pagesInFile, Math.ceil(slotsInTable / geometry.slotsPerPageMax));
  const scan = new RecordScan(blocks, blocksRanges, layout, family, staging);
  const leftovers: FoundRecord[] = [];
  let sequence = lost ? 0 : loaded.done.sequence;
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
        page += Math.floor((blocksRanges.next(at) - at) / layout.pageStrideBytes);
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

  return {
    geometry,
    table,
    marked,
    epoch: lost ? 0 : loaded.done.epoch,
    markEpoch: lost ? 0 : loaded.done.epoch + (loaded.unfinished ? 1 : 0),
    sequence,
    closed: !lost && loaded.done.closed,
    doneRecords: lost ? 0 : loaded.done.records,
    slotBlocks: lost ? 0 : loaded.done.slotBlocks,
    indexProblem: lost ? loaded : '',
    indexFaults: lost ? [] : loaded.faults,
    leftovers,
    regionsRead,
    bytesRead: scan.bytesRead,
    readErrors: scan.readErrors,
  };
}

/** What a store that was just created has. */
export function nothingRecovered(layout: FileLayout): Recovered {
  return {
    geometry: geometryOf(layout),
    table: new SlotTable(),
    marked: new RegionBits(),
    epoch: 1,
    markEpoch: 1,
    sequence: 0,
    closed: false,
    doneRecords: 0,
    slotBlocks: 0,
    indexProblem: '',
    indexFaults: [],
    leftovers: [],
    regionsRead: 0,
    bytesRead: 0,
    readErrors: 0,
  };
}
