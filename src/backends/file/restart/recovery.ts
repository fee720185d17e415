/**
 * A start on a directory that was used before: the checkpoint's table where nothing was written since, the
 * records themselves where something was. What comes out is what the next run may read; all of it is either
 * durable and untouched since the checkpoint, or was read and checked just now. The time it takes grows with
 * what was written between the checkpoint and the end, not with the store.
 */

import type { RangedFile } from '../io/dataRanges.ts';
import type { StagingPool } from '../io/stagingPool.ts';
import { type FileLayout, pageAt, recordOffset } from '../record/fileLayout.ts';
import type { RecordFamily } from '../record/record.ts';
import { type FoundRecord, RecordScan } from '../record/recordScan.ts';
import { ENTRIES_PER_BLOCK, geometryOf } from './indexFile/indexBlocks.ts';
import { type LoadedIndex, loadIndex, writtenRegions } from './indexFile/indexFile.ts';
import { RegionBits } from './indexFile/regionBits.ts';
import { SlotTable } from './slotTable.ts';

/** What a start found: the checkpoint as it counts, with the records of marked regions as they were read. */
export interface Recovered extends LoadedIndex {
  /** Why the index could not be used at all; empty where it could. */
  readonly indexProblem: string;
  /** Records in marked regions that are not whole: what a crash leaves of a write. */
  readonly leftovers: readonly FoundRecord[];
  readonly regionsRead: number;
  readonly bytesRead: number;
}

/** Pages read at once: what staging memory is enough for. */
const READERS = 3;

/** @param index undefined when there is none */
export async function recover(
  blocks: RangedFile,
  index: RangedFile | undefined,
  layout: FileLayout,
  family: RecordFamily,
  staging: StagingPool,
): Promise<Recovered> {
  const loaded =
    index === undefined ? 'there is no index file' : await loadIndex(index, layout, family.store);
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

/** What a store that was just created has. */
export function nothingRecovered(layout: FileLayout): Recovered {
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
