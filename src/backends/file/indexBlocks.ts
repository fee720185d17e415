/**
 * The format of the index file, which lies beside the data file. Each block says what it is and carries a
 * digest. The file holds two checkpoints of the slot table, and marks of the regions that were written since.
 * docs/internals/disk-format.md has every field.
 *
 *      +------+--------------------------------+--------------------------------+
 *      | HEAD | half 0 (even epochs)           | half 1 (odd epochs)            |    half: DONE, MARKs, SLOTs
 *      +------+--------------------------------+--------------------------------+
 *
 *      0       8    12       16       24      32       40                64                       4096
 *      +-------+----+--------+--------+-------+--------+-----------------+------------------------+
 *      | magic | v  | number | store  | epoch | digest | of its kind     | of its kind            |
 *      +-------+----+--------+--------+-------+--------+-----------------+------------------------+
 */

import { type Digest, digestWords } from '../../runtime/digest.ts';
import { invariant } from '../../runtime/errors.ts';
import { BLOCK_BYTES } from './dataFile.ts';
import { type FileLayout, isDigest, pageOf, setDigest, setWide, wide } from './record.ts';

export const BLOCK_WORDS: number = BLOCK_BYTES / 4;
export const HEAD_WORDS = 16;
export const ENTRY_WORDS = 16;
export const ENTRIES_PER_BLOCK: number = (BLOCK_WORDS - HEAD_WORDS) / ENTRY_WORDS;
export const REGIONS_PER_BLOCK: number = (BLOCK_WORDS - HEAD_WORDS) * 32;
/** Bytes of a region, about: a region is as many whole pages as fit, at least one. */
const REGION_BYTES: number = 1024 * 1024;
export const INDEX_VERSION = 3;
/** Oldest version that is read. Version 2 lacks the number of SLOT blocks. */
const INDEX_VERSION_MIN = 2;

/** The second half of a block's magic; the first is 'TKVI'. */
export const BlockKind = { HEAD: 'HEAD', DONE: 'DONE', MARK: 'MARK', SLOT: 'SLOT' } as const;
export type BlockKind = (typeof BlockKind)[keyof typeof BlockKind];

export interface IndexGeometry {
  readonly pages: number;
  readonly slotsPerPageMax: number;
  readonly regionPages: number;
  readonly regions: number;
  readonly markBlocks: number;
  readonly slotBlocks: number;
  readonly halfBytes: number;
  readonly fileBytes: number;
}

function indexGeometry(pages: number, slotsPerPageMax: number, regionPages: number): IndexGeometry {
  const regions = Math.ceil(pages / regionPages);
  const markBlocks = Math.ceil(regions / REGIONS_PER_BLOCK);
  const slotBlocks = Math.ceil((pages * slotsPerPageMax) / ENTRIES_PER_BLOCK);
  const halfBytes = (1 + markBlocks + slotBlocks) * BLOCK_BYTES;
  const fileBytes = BLOCK_BYTES + 2 * halfBytes;
  return { pages, slotsPerPageMax, regionPages, regions, markBlocks, slotBlocks, halfBytes, fileBytes };
}

export function geometryOf(layout: FileLayout): IndexGeometry {
  const regionPages = Math.max(1, Math.floor(REGION_BYTES / layout.pageStrideBytes));
  return indexGeometry(layout.shape.pages, layout.shape.slotsPerPageMax, regionPages);
}

export function regionOf(layout: FileLayout, geometry: IndexGeometry, slot: number): number {
  return Math.floor(pageOf(layout, slot) / geometry.regionPages);
}

/** Offset of a block in the epoch's half: DONE, then MARKs, then SLOTs. */
export function blockOffset(geometry: IndexGeometry, epoch: number, kind: BlockKind, number: number): number {
  const first = kind === BlockKind.DONE ? 0 : kind === BlockKind.MARK ? 1 : 1 + geometry.markBlocks;
  return BLOCK_BYTES + (epoch % 2) * geometry.halfBytes + (first + number) * BLOCK_BYTES;
}

const MAGIC = wordOf('TKVI');

/** Writes head and digest of a block whose other words are in place. */
export function sealBlock(
  words: Uint32Array,
  kind: BlockKind,
  number: number,
  store: Digest,
  epoch: number,
): void {
  invariant(words.length === BLOCK_WORDS, 'an index block is one block');
  words[0] = MAGIC;
  words[1] = wordOf(kind);
  words[2] = INDEX_VERSION;
  words[3] = number;
  setDigest(words, 4, store);
  setWide(words, 6, epoch);
  setDigest(words, 8, { lo: 0, hi: 0 });
  setDigest(words, 8, digestWords(words));
}

/** Why the block is not the one of this store that belongs here; empty if it is. */
export function blockFault(
  words: Uint32Array,
  kind: BlockKind,
  number: number,
  store: Digest | undefined,
): string {
  const found = { lo: words[8], hi: words[9] };
  words.fill(0, 8, 10);
  const computed = digestWords(words);
  setDigest(words, 8, found);
  if (words[0] !== MAGIC || words[1] !== wordOf(kind)) return `is not a ${kind} block`;
  if (!isDigest(words, 8, computed)) return 'does not have its digest';
  if (words[2] < INDEX_VERSION_MIN || words[2] > INDEX_VERSION) {
    return `has version ${words[2]}, not ${INDEX_VERSION}`;
  }
  if (store !== undefined && !isDigest(words, 4, store)) return 'is of another store';
  if (words[3] !== number) return `is block ${words[3]}`;
  return '';
}

/** Whether the block was never written. */
export function isBlank(words: Uint32Array): boolean {
  return words.every((word) => word === 0);
}

export function epochIn(words: Uint32Array): number {
  return wide(words, 6);
}

export function headBlock(geometry: IndexGeometry, store: Digest): Uint32Array {
  const words = new Uint32Array(BLOCK_WORDS);
  setWide(words, 10, geometry.pages);
  words[12] = geometry.slotsPerPageMax;
  words[13] = geometry.regionPages;
  sealBlock(words, BlockKind.HEAD, 0, store, 0);
  return words;
}

export function geometryIn(head: Uint32Array): IndexGeometry {
  return indexGeometry(wide(head, 10), head[12], head[13]);
}

/** Content of a DONE block, which makes its half valid: it is written after everything else of its epoch. */
export interface DoneFacts {
  readonly epoch: number;
  /** Number of the last record written before the checkpoint. */
  readonly sequence: number;
  /** Records in the half's SLOT blocks. */
  readonly records: number;
  /** Whether the store was closed and not opened since. */
  readonly closed: boolean;
  /** SLOT blocks that were ever written: if one of them is blank it is damaged. 0 if unknown. */
  readonly slotBlocks: number;
}

export function doneBlock(store: Digest, done: DoneFacts): Uint32Array {
  const { epoch, sequence, records, closed, slotBlocks } = done;
  const words = new Uint32Array(BLOCK_WORDS);
  setWide(words, 10, sequence);
  setWide(words, 12, records);
  words[14] = closed ? 1 : 0;
  words[15] = slotBlocks;
  sealBlock(words, BlockKind.DONE, 0, store, epoch);
  return words;
}

export function doneFacts(words: Uint32Array): DoneFacts {
  return {
    epoch: epochIn(words),
    sequence: wide(words, 10),
    records: wide(words, 12),
    closed: words[14] === 1,
    slotBlocks: words[15],
  };
}

export function bytesOf(words: Uint32Array): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
}

function wordOf(text: string): number {
  return text.split('').reduce((word, letter, i) => word + letter.charCodeAt(0) * 2 ** (8 * i), 0);
}

// ---- a set of regions, as the bits of MARK blocks; memory grows with the members

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

  /** Adds the regions whose bits a MARK block has set. */
  addBlock(block: number, words: Uint32Array): void {
    const own = this.#block(block);
    for (let w = HEAD_WORDS; w < BLOCK_WORDS; w++) own[w] |= words[w];
  }

  /** Adds every region that a MARK block covers. */
  fillBlock(block: number): void {
    this.#block(block).fill(0xffff_ffff, HEAD_WORDS);
  }

  /** A new MARK block with the bits of the set; its head is empty. */
  block(block: number): Uint32Array {
    return this.#blocks.get(block)?.slice() ?? new Uint32Array(BLOCK_WORDS);
  }

  get isEmpty(): boolean {
    for (const words of this.#blocks.values()) if (words.some((word) => word !== 0)) return false;
    return true;
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
