/**
 * From files to a store that runs: recovery, then an index file that says what was recovered and has nothing
 * marked.
 */

import type { DataFile } from '../io/dataFile.ts';
import type { RangedFile } from '../io/dataRanges.ts';
import type { StagingPool } from '../io/stagingPool.ts';
import type { FileLayout } from '../record/fileLayout.ts';
import type { RecordFamily } from '../record/record.ts';
import { bytesOf, geometryOf, headBlock, type IndexGeometry } from './indexFile/indexBlocks.ts';
import { RegionBits } from './indexFile/regionBits.ts';
import { nothingRecovered, type Recovered, recover } from './recovery.ts';
import { type WarmSettings, WarmState } from './warmState.ts';

/**
 * More records than any life writes between two checkpoints. A loss of power may take back marks, but leave
 * records that they announced; so after whatever was not a close, numbers go on above those that such records
 * can have, and are durably so before the first of them is used. Else a record of a lost life could pass for
 * newer than one of this life in the same page.
 */
const UNSEEN_RECORDS = 2 ** 32;

export interface WarmStartRequest {
  readonly blocks: RangedFile;
  readonly layout: FileLayout;
  readonly family: RecordFamily;
  readonly settings: WarmSettings;
  readonly staging: StagingPool;
  /** The index file of a store that was there, that it has none, or that the store is new. */
  readonly kept: RangedFile | 'none' | 'new';
  /** Makes an empty index file under a preliminary name. */
  readonly create: () => Promise<DataFile>;
}

export interface WarmStarted {
  readonly warm: WarmState;
  readonly recovered: Recovered;
  readonly index: DataFile;
  /** Whether the index file is a new one, that still has its preliminary name. */
  readonly created: boolean;
}

export async function warmStart(request: WarmStartRequest): Promise<WarmStarted> {
  const { blocks, layout, family, settings, staging, kept } = request;
  const old = typeof kept === 'string' ? undefined : kept;
  const recovered =
    kept === 'new' ? nothingRecovered(layout) : await recover(blocks, old, layout, family, staging);
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
    // Two, when the crash came within a checkpoint: the first finishes its epoch, the second begins one
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
