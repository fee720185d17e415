/**
 * Writes the blocks of a checkpoint into its half of the index file: the SLOT blocks that differ from what
 * the half has, and the DONE block that makes the half valid. When each of them must be durable is the
 * caller's matter.
 */

import type { Digest } from '../../../../runtime/digest.ts';
import type { DataFile } from '../../io/dataFile.ts';
import type { SlotTable } from '../slotTable.ts';
import {
  BLOCK_WORDS,
  BlockKind,
  blockOffset,
  bytesOf,
  type DoneFacts,
  doneBlock,
  type IndexGeometry,
  sealBlock,
} from './indexBlocks.ts';

/** Blocks of the table that go to the file in one write. */
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
   * @returns how many SLOT blocks the half has now, those before that were not stale included
   * @throws with the errno as `code`; the blocks that were not written stay stale
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
