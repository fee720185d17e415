/**
 * Reads and writes the index file. Reading finds the newest whole checkpoint and the regions that may have
 * been written since. A block that is damaged, missing or newer than its checkpoint marks the regions it
 * covers, and the records of marked regions are read. So damage to the index costs time, and never gives a
 * wrong answer.
 *
 *     epoch C is the newest with a DONE block      marked: MARKs of C in its half, and of C + 1 in the other
 */

import type { Digest } from '../../runtime/digest.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import { BLOCK_BYTES, type DataFile, type DataRanges, errnoOf, type RangedFile } from './dataFile.ts';
import {
  BLOCK_WORDS,
  BlockKind,
  blockFault,
  blockOffset,
  bytesOf,
  type DoneFacts,
  doneBlock,
  doneFacts,
  ENTRIES_PER_BLOCK,
  epochIn,
  geometryIn,
  geometryOf,
  type IndexGeometry,
  isBlank,
  RegionBits,
  sealBlock,
} from './indexBlocks.ts';
import { DATA_START_BYTES, type FileLayout, pageAt } from './record.ts';
import { SlotTable } from './slotTable.ts';

export interface IndexFault {
  readonly kind: BlockKind;
  readonly block: number;
  readonly half: number;
  readonly problem: string;
}

/** The newest whole checkpoint, and the regions that may have changed since. */
export interface LoadedIndex extends DoneFacts {
  /** Geometry of the index file. It differs from the store's if the store's size has changed. */
  readonly geometry: IndexGeometry;
  readonly table: SlotTable;
  /** Regions whose records must be read. */
  readonly marked: RegionBits;
  /** Epoch of the newest marks: `epoch` + 1 if a checkpoint was begun and not finished. */
  readonly markEpoch: number;
  readonly indexFaults: readonly IndexFault[];
}

const CHUNK_BLOCKS = 256;

/** The index, or why it cannot be used; then every region has to be read. */
export async function loadIndex(
  index: RangedFile,
  layout: FileLayout,
  store: Digest,
): Promise<LoadedIndex | string> {
  const geometry = await storedGeometry(index, layout, store);
  return typeof geometry === 'string'
    ? geometry
    : new IndexReader(index, layout.shape, store, geometry).read();
}

/** Geometry of the index file by its HEAD block, or why the block cannot be right. */
export async function storedGeometry(
  { file, ranges }: RangedFile,
  layout: FileLayout,
  store: Digest,
): Promise<IndexGeometry | string> {
  const head = new Uint32Array(BLOCK_WORDS);
  const problem = await readBlock(file, head, 0, BlockKind.HEAD, 0, store);
  if (problem !== '') return `its HEAD block ${problem}`;
  const geometry = geometryIn(head);
  const own = geometryOf(layout);
  const { pages, slotsPerPageMax, regionPages, fileBytes } = geometry;
  if (slotsPerPageMax !== own.slotsPerPageMax || regionPages !== own.regionPages) {
    return `its HEAD block is of pages of ${slotsPerPageMax} slots in regions of ${regionPages}`;
  }
  if (fileBytes > ranges.fileBytes) {
    const claim = `${pages} pages, an index of ${fileBytes} bytes`;
    return `its HEAD block says ${claim}, and the file has ${ranges.fileBytes}`;
  }
  return geometry;
}

class IndexReader {
  readonly #file: DataFile;
  readonly #ranges: DataRanges;
  readonly #shape: PoolShape;
  readonly #store: Digest;
  readonly #geometry: IndexGeometry;
  readonly #table: SlotTable = new SlotTable();
  readonly #marked: RegionBits = new RegionBits();
  readonly #faults: IndexFault[] = [];
  #unfinished = false;

  constructor({ file, ranges }: RangedFile, shape: PoolShape, store: Digest, geometry: IndexGeometry) {
    this.#file = file;
    this.#shape = shape;
    this.#ranges = ranges;
    this.#store = store;
    this.#geometry = geometry;
  }

  async read(): Promise<LoadedIndex | string> {
    const done = await this.#newest();
    if (done === undefined) return 'it has no finished checkpoint';
    await this.#marks(done.epoch, done.epoch);
    await this.#marks(done.epoch + 1, done.epoch);
    await this.#slots(done.epoch, done);
    await this.#slots(done.epoch + 1, done);
    return {
      ...done,
      geometry: this.#geometry,
      table: this.#table,
      marked: this.#marked,
      markEpoch: done.epoch + (this.#unfinished ? 1 : 0),
      indexFaults: this.#faults,
    };
  }

  async #newest(): Promise<DoneFacts | undefined> {
    let newest: DoneFacts | undefined;
    const words = new Uint32Array(BLOCK_WORDS);
    for (const half of [0, 1]) {
      const at = blockOffset(this.#geometry, half, BlockKind.DONE, 0);
      const problem = await readBlock(this.#file, words, at, BlockKind.DONE, 0, this.#store);
      if (problem === '') {
        const facts = doneFacts(words);
        if (newest === undefined || facts.epoch > newest.epoch) newest = facts;
      } else if (!isBlank(words)) this.#fault(BlockKind.DONE, 0, half, problem);
    }
    return newest;
  }

  async #marks(epoch: number, done: number): Promise<void> {
    await this.#each(BlockKind.MARK, epoch, this.#geometry.markBlocks, (block, words, problem) => {
      if (problem !== '') {
        this.#fault(BlockKind.MARK, block, epoch % 2, problem);
        this.#marked.fillBlock(block);
        return;
      }
      const found = epochIn(words);
      if (found > epoch) this.#marked.fillBlock(block);
      else if (found === epoch) {
        this.#marked.addBlock(block, words);
        if (epoch > done) this.#unfinished = true;
      }
    });
  }

  async #slots(epoch: number, done: DoneFacts): Promise<void> {
    const isDone = epoch === done.epoch;
    const visit = (block: number, words: Uint32Array, problem: string): void => {
      this.#table.cover(block);
      if (problem !== '') this.#fault(BlockKind.SLOT, block, epoch % 2, problem);
      if (!isDone) return;
      if (problem !== '' || epochIn(words) > epoch) {
        this.#markSlotsOf(block, block + 1);
        return;
      }
      this.#table.copyIn(block, epoch % 2, words);
      const first = block * ENTRIES_PER_BLOCK;
      for (let slot = first; slot < first + ENTRIES_PER_BLOCK; slot++) {
        if (this.#table.fits(slot, this.#shape, done.sequence)) continue;
        this.#fault(BlockKind.SLOT, block, epoch % 2, `lists what slot ${slot} cannot hold`);
        this.#markSlotsOf(block, block + 1);
        this.#table.clear(slot);
      }
    };
    const visitBlank = (first: number, end: number): void => {
      const written = isDone ? Math.min(end, done.slotBlocks) : 0;
      if (first >= written) return;
      const others = written - first === 1 ? '' : `, and so are those up to ${written - 1}`;
      this.#fault(BlockKind.SLOT, first, epoch % 2, `was written and is blank${others}`);
      this.#markSlotsOf(first, written);
    };
    await this.#each(BlockKind.SLOT, epoch, this.#geometry.slotBlocks, visit, visitBlank);
  }

  /** Marks the regions of all slots that the SLOT blocks in [first, end) cover. */
  #markSlotsOf(first: number, end: number): void {
    const { slotsPerPageMax, regionPages, regions } = this.#geometry;
    const perRegion = slotsPerPageMax * regionPages;
    const from = Math.floor((first * ENTRIES_PER_BLOCK) / perRegion);
    const to = Math.floor((end * ENTRIES_PER_BLOCK - 1) / perRegion);
    for (let region = from; region <= Math.min(to, regions - 1); region++) this.#marked.add(region);
  }

  /**
   * Visits the blocks of a kind in the epoch's half: blocks with content, with their fault, and runs of blank
   * blocks.
   * @param visitBlank called with a run of blank blocks, [first, end)
   */
  async #each(
    kind: BlockKind,
    epoch: number,
    count: number,
    visit: (block: number, words: Uint32Array, problem: string) => void,
    visitBlank: (first: number, end: number) => void = () => {},
  ): Promise<void> {
    const chunk = new Uint32Array(CHUNK_BLOCKS * BLOCK_WORDS);
    for (let first = 0; first < count; ) {
      const at = blockOffset(this.#geometry, epoch, kind, first);
      const blank = Math.min(count - first, Math.floor((this.#ranges.next(at) - at) / BLOCK_BYTES));
      if (blank > 0) {
        visitBlank(first, first + blank);
        first += blank;
        continue;
      }
      const blocks = Math.min(CHUNK_BLOCKS, count - first);
      const words = chunk.subarray(0, blocks * BLOCK_WORDS);
      const errno = await readWords(this.#file, words, at);
      for (let i = 0; i < blocks; i++) {
        const block = words.subarray(i * BLOCK_WORDS, (i + 1) * BLOCK_WORDS);
        let problem = errno;
        if (errno !== '' && blocks > 1) {
          problem = await readWords(this.#file, block, blockOffset(this.#geometry, epoch, kind, first + i));
        }
        if (problem === '') {
          if (isBlank(block)) {
            visitBlank(first + i, first + i + 1);
            continue;
          }
          problem = blockFault(block, kind, first + i, this.#store);
        }
        visit(first + i, block, problem);
      }
      first += blocks;
    }
  }

  #fault(kind: BlockKind, block: number, half: number, problem: string): void {
    this.#faults.push({ kind, block, half, problem });
  }
}

async function readWords(file: DataFile, words: Uint32Array, at: number): Promise<string> {
  try {
    await file.readv([bytesOf(words)], at);
    return '';
  } catch (error) {
    words.fill(0);
    return `cannot be read (${errnoOf(error)})`;
  }
}

async function readBlock(
  file: DataFile,
  words: Uint32Array,
  at: number,
  kind: BlockKind,
  number: number,
  store: Digest,
): Promise<string> {
  const problem = await readWords(file, words, at);
  return problem === '' ? blockFault(words, kind, number, store) : problem;
}

/** The regions of the blocks file that were ever written, for a store whose index is lost. */
export function writtenRegions(ranges: DataRanges, layout: FileLayout): RegionBits {
  const { regionPages, regions } = geometryOf(layout);
  const regionBytes = regionPages * layout.pageStrideBytes;
  const written = new RegionBits();
  for (let at = ranges.next(DATA_START_BYTES); at < ranges.fileBytes; ) {
    const region = Math.floor(pageAt(layout, at) / regionPages);
    if (region >= regions) break;
    written.add(region);
    at = ranges.next(DATA_START_BYTES + (region + 1) * regionBytes);
  }
  return written;
}

// ---- writing a checkpoint

/** SLOT blocks in one write: 1 MiB. */
const WRITE_BLOCKS = 256;

export class CheckpointWriter {
  readonly #index: DataFile;
  readonly #geometry: IndexGeometry;
  readonly #store: Digest;
  readonly #table: SlotTable;

  constructor(index: DataFile, geometry: IndexGeometry, store: Digest, table: SlotTable) {
    this.#index = index;
    this.#geometry = geometry;
    this.#store = store;
    this.#table = table;
  }

  /**
   * Writes the stale SLOT blocks of the epoch's half.
   * @returns number of SLOT blocks that the half has now, blocks that were not stale included
   * @throws with the errno as `code`; blocks that were not written stay stale
   */
  async writeSlots(epoch: number): Promise<number> {
    const blocks = Math.min(this.#table.blocks, this.#geometry.slotBlocks);
    for (let block = 0; block < blocks; ) block = await this.#writeRun(block, blocks, epoch);
    return blocks;
  }

  /** @throws with the errno as `code` */
  async writeDone(done: DoneFacts): Promise<void> {
    const words = doneBlock(this.#store, done);
    const at = blockOffset(this.#geometry, done.epoch, BlockKind.DONE, 0);
    await this.#index.writev([bytesOf(words)], at);
  }

  /** Writes a run of stale blocks from `from` on. @returns the block after it */
  async #writeRun(from: number, blocks: number, epoch: number): Promise<number> {
    const half = epoch % 2;
    let first = from;
    while (first < blocks && !this.#table.isStale(first, half)) first++;
    let end = first;
    while (end < blocks && end < first + WRITE_BLOCKS && this.#table.isStale(end, half)) end++;
    if (end === first) return blocks;
    const words = new Uint32Array((end - first) * BLOCK_WORDS);
    for (let block = first; block < end; block++) {
      const own = words.subarray((block - first) * BLOCK_WORDS, (block - first + 1) * BLOCK_WORDS);
      this.#table.copyOut(block, half, own);
      sealBlock(own, BlockKind.SLOT, block, this.#store, epoch);
    }
    try {
      await this.#index.writev([bytesOf(words)], blockOffset(this.#geometry, epoch, BlockKind.SLOT, first));
    } catch (error) {
      for (let block = first; block < end; block++) this.#table.copyFailed(block, half);
      throw error;
    }
    return end;
  }
}
