/**
 * A set of regions, as bits in the form of the index file's MARK blocks. Memory grows with the regions that
 * are in it.
 */

import { BLOCK_WORDS, HEAD_WORDS, REGIONS_PER_BLOCK } from './indexBlocks.ts';

export class RegionBits {
  readonly #blocks: Map<number, Uint32Array> = new Map();

  has(region: number): boolean {
    const words = this.#blocks.get(Math.floor(region / REGIONS_PER_BLOCK));
    if (words === undefined) return false;
    const bit = region % REGIONS_PER_BLOCK;
    return (words[HEAD_WORDS + (bit >>> 5)] & (1 << (bit & 31))) !== 0;
  }

  add(region: number): void {
    const bit = region % REGIONS_PER_BLOCK;
    this.#block(Math.floor(region / REGIONS_PER_BLOCK))[HEAD_WORDS + (bit >>> 5)] |= 1 << (bit & 31);
  }

  /** Adds what a MARK block has set. */
  addBlock(block: number, words: Uint32Array): void {
    const own = this.#block(block);
    for (let w = HEAD_WORDS; w < BLOCK_WORDS; w++) own[w] |= words[w];
  }

  /** Adds every region of a MARK block. */
  fillBlock(block: number): void {
    this.#block(block).fill(0xffff_ffff, HEAD_WORDS);
  }

  /** A copy of the block with its bits, its head empty. */
  block(block: number): Uint32Array {
    return this.#blocks.get(block)?.slice() ?? new Uint32Array(BLOCK_WORDS);
  }

  get isEmpty(): boolean {
    for (const words of this.#blocks.values()) if (words.some((word) => word !== 0)) return false;
    return true;
  }

  clear(): void {
    this.#blocks.clear();
  }

  /** Regions of the set below `limit`, in order. */
  *below(limit: number): Generator<number> {
    for (const block of [...this.#blocks.keys()].sort((a, b) => a - b)) {
      const words = this.#blocks.get(block)!;
      for (let w = HEAD_WORDS; w < BLOCK_WORDS; w++) {
        if (words[w] === 0) continue;
        for (let bit = 0; bit < 32; bit++) {
          const region = block * REGIONS_PER_BLOCK + (w - HEAD_WORDS) * 32 + bit;
          if (region < limit && (words[w] & (1 << bit)) !== 0) yield region;
        }
      }
    }
  }

  #block(block: number): Uint32Array {
    let words = this.#blocks.get(block);
    if (words === undefined) {
      words = new Uint32Array(BLOCK_WORDS);
      this.#blocks.set(block, words);
    }
    return words;
  }
}
