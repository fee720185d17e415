/**
 * Reads an index file: the newest checkpoint that is whole, and which regions may have been written since. Whatever is
 * damaged, missing or newer than its checkpoint makes the regions that it speaks of marked: then their records are read.
 * So damage to the index costs time and never a wrong answer.
 *
 *     epoch C is the newest with a DONE block      marked: MARKs of C in its half, and of C + 1 in the other
 */

import type { Digest } from '../../../runtime/digest.ts';
import type { DataFile } from '../io/dataFile.ts';
import { errnoOf } from '../io/dataFile.ts';
import {
  BLOCK_WORDS,
  BlockKind,
  blockFault,
  blockOffset,
  bytesOf,
  type DoneFacts,
  doneFacts,
  ENTRIES_PER_BLOCK,
  epochIn,
  geometryIn,
  type IndexGeometry,
  isBlank,
  REGIONS_PER_BLOCK,
} from './indexBlocks.ts';
import { RegionBits } from './regionBits.ts';
import { SlotTable } from './slotTable.ts';

export interface IndexFault {
  readonly kind: BlockKind;
  readonly block: number;
  readonly half: number;
  readonly problem: string;
}

export interface LoadedIndex {
  readonly geometry: IndexGeometry;
  readonly done: DoneFacts;
  readonly table: SlotTable;
  /** Regions whose records must be read. */
  readonly marked: RegionBits;
  /** Whether a checkpoint of the next epoch was begun and not finished. */
  readonly unfinished: boolean;
  readonly faults: readonly IndexFault[];
}

const CHUNK_BLOCKS = 256;

/** The index, or why the file holds none: then every region has to be read. */
export async function loadIndex(file: DataFile, store: Digest): Promise<LoadedIndex | string> {
  const head = new Uint32Array(BLOCK_WORDS);
  const problem = await readBlock(file, head, 0, BlockKind.HEAD, 0, store);
  if (problem !== '') return `its HEAD block ${problem}`;
  return new IndexReader(file, store, geometryIn(head)).read();
}

class IndexReader {
  readonly #file: DataFile;
  readonly #store: Digest;
  readonly #geometry: IndexGeometry;
  readonly #table: SlotTable = new SlotTable();
  readonly #marked: RegionBits = new RegionBits();
  readonly #faults: IndexFault[] = [];
  #unfinished = false;

  constructor(file: DataFile, store: Digest, geometry: IndexGeometry) {
    this.#file = file;
    this.#store = store;
    this.#geometry = geometry;
  }

  async read(): Promise<LoadedIndex | string> {
    const done = await this.#newest();
    if (done === undefined) return 'it has no finished checkpoint';
    await this.#marks(done.epoch, done.epoch);
    await this.#marks(done.epoch + 1, done.epoch);
    await this.#slots(done.epoch, done.epoch);
    await this.#slots(done.epoch + 1, done.epoch);
    return {
      geometry: this.#geometry,
      done,
      table: this.#table,
      marked: this.#marked,
      unfinished: this.#unfinished,
      faults: this.#faults,
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

  async #slots(epoch: number, done: number): Promise<void> {
    await this.#each(BlockKind.SLOT, epoch, this.#geometry.slotBlocks, (block, words, problem) => {
      this.#table.cover(block);
      if (problem !== '') this.#fault(BlockKind.SLOT, block, epoch % 2, problem);
      if (epoch !== done) return;
      if (problem !== '' || epochIn(words) > done) this.#markSlotsOf(block);
      else this.#table.copyIn(block, epoch % 2, words);
    });
  }

  #markSlotsOf(block: number): void {
    const { slotsPerPageMax, regionPages, regions } = this.#geometry;
    const perRegion = slotsPerPageMax * regionPages;
    const first = Math.floor((block * ENTRIES_PER_BLOCK) / perRegion);
    const last = Math.floor(((block + 1) * ENTRIES_PER_BLOCK - 1) / perRegion);
    for (let region = first; region <= Math.min(last, regions - 1); region++) this.#marked.add(region);
  }

  /** Every block of the kind in the epoch's half that was ever written, with what is wrong with it. */
  async #each(
    kind: BlockKind,
    epoch: number,
    count: number,
    visit: (block: number, words: Uint32Array, problem: string) => void,
  ): Promise<void> {
    const chunk = new Uint32Array(CHUNK_BLOCKS * BLOCK_WORDS);
    for (let first = 0; first < count; first += CHUNK_BLOCKS) {
      const blocks = Math.min(CHUNK_BLOCKS, count - first);
      const words = chunk.subarray(0, blocks * BLOCK_WORDS);
      const errno = await readWords(this.#file, words, blockOffset(this.#geometry, epoch, kind, first));
      for (let i = 0; i < blocks; i++) {
        const block = words.subarray(i * BLOCK_WORDS, (i + 1) * BLOCK_WORDS);
        let problem = errno;
        if (errno !== '' && blocks > 1) {
          problem = await readWords(this.#file, block, blockOffset(this.#geometry, epoch, kind, first + i));
        }
        if (problem === '') {
          if (isBlank(block)) continue;
          problem = blockFault(block, kind, first + i, this.#store);
        }
        visit(first + i, block, problem);
      }
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

/** How the index file is cut, as its HEAD block says; undefined when that is damaged. */
export async function storedGeometry(file: DataFile, store: Digest): Promise<IndexGeometry | undefined> {
  const head = new Uint32Array(BLOCK_WORDS);
  const problem = await readBlock(file, head, 0, BlockKind.HEAD, 0, store);
  return problem === '' ? geometryIn(head) : undefined;
}

/** Every region of `geometry`, for a store whose index is lost. */
export function allRegions(geometry: IndexGeometry): RegionBits {
  const marked = new RegionBits();
  for (let block = 0; block < Math.ceil(geometry.regions / REGIONS_PER_BLOCK); block++) {
    marked.fillBlock(block);
  }
  return marked;
}
