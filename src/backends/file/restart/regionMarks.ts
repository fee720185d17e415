/**
 * Which regions of the data file may differ from the last finished checkpoint. A region's mark is in the
 * index file before the first record of the epoch is written there, so that after a crash only marked regions
 * have to be read. Marks asked for together are written together; a region is marked once an epoch, and then
 * costs nothing.
 */

import type { Digest } from '../../../runtime/digest.ts';
import { invariant } from '../../../runtime/errors.ts';
import type { DataFile } from '../io/dataFile.ts';
import {
  BlockKind,
  blockOffset,
  bytesOf,
  type IndexGeometry,
  REGIONS_PER_BLOCK,
  sealBlock,
} from './indexFile/indexBlocks.ts';
import { RegionBits } from './indexFile/regionBits.ts';
import { SharedRun } from './sharedRun.ts';

export class RegionMarks {
  readonly #file: DataFile;
  readonly #geometry: IndexGeometry;
  readonly #store: Digest;
  readonly #wanted: RegionBits = new RegionBits();
  readonly #written: RegionBits = new RegionBits();
  /** How many writes are under way in each region. A write that spans two epochs counts in both. */
  readonly #inFlight: Map<number, number> = new Map();
  /**
   * Writes of a MARK block, one after the other whatever the epoch, so that an older state never lands on a
   * newer one.
   */
  readonly #writes: Map<number, SharedRun> = new Map();
  #epoch: number;

  constructor(file: DataFile, geometry: IndexGeometry, store: Digest, epoch: number) {
    this.#file = file;
    this.#geometry = geometry;
    this.#store = store;
    this.#epoch = epoch;
  }

  get epoch(): number {
    return this.#epoch;
  }

  get isEmpty(): boolean {
    return this.#wanted.isEmpty;
  }

  get count(): number {
    return [...this.#wanted.below(this.#geometry.regions)].length;
  }

  /** Takes over the marks that a load found: they are in the file already. */
  restore(marked: RegionBits): void {
    for (const region of marked.below(this.#geometry.regions)) {
      this.#wanted.add(region);
      this.#written.add(region);
    }
  }

  /**
   * A write to each region is about to begin; `end` says that it is over.
   * @returns fulfilled once their marks are in the file, rejected with the errno as `code`; undefined when
   * they are already
   */
  begin(regions: readonly number[]): Promise<void> | undefined {
    let waits: Promise<void>[] | undefined;
    let flushed = -1;
    for (const region of regions) {
      this.#inFlight.set(region, (this.#inFlight.get(region) ?? 0) + 1);
      if (this.#written.has(region)) continue;
      this.#wanted.add(region);
      const block = Math.floor(region / REGIONS_PER_BLOCK);
      if (block === flushed) continue;
      flushed = block;
      waits ??= [];
      waits.push(this.#flush(block));
    }
    return waits === undefined ? undefined : Promise.all(waits).then(() => undefined);
  }

  end(region: number): void {
    const left = (this.#inFlight.get(region) ?? 0) - 1;
    invariant(left >= 0, 'a write ends once');
    if (left === 0) this.#inFlight.delete(region);
    else this.#inFlight.set(region, left);
  }

  /** Begins an epoch that marks what is being written now. @returns fulfilled once that is in the file */
  advance(epoch: number): Promise<void> {
    this.#epoch = epoch;
    this.#wanted.clear();
    this.#written.clear();
    for (const region of this.#inFlight.keys()) this.#wanted.add(region);
    return this.writeAll();
  }

  /** Writes every block that has marks which are not in the file. */
  async writeAll(): Promise<void> {
    const blocks = new Set<number>();
    for (const region of this.#wanted.below(this.#geometry.regions)) {
      if (!this.#written.has(region)) blocks.add(Math.floor(region / REGIONS_PER_BLOCK));
    }
    await Promise.all([...blocks].map((block) => this.#flush(block)));
  }

  #flush(block: number): Promise<void> {
    let writes = this.#writes.get(block);
    if (writes === undefined) {
      writes = new SharedRun(() => this.#write(block));
      this.#writes.set(block, writes);
    }
    return writes.ask();
  }

  /**
   * Writes the block as it is now. A mark that was asked for in an earlier epoch is part of this one too,
   * since the write that wants it is still in flight.
   */
  async #write(block: number): Promise<void> {
    const epoch = this.#epoch;
    const words = this.#wanted.block(block);
    sealBlock(words, BlockKind.MARK, block, this.#store, epoch);
    await this.#file.writev([bytesOf(words)], blockOffset(this.#geometry, epoch, BlockKind.MARK, block));
    if (epoch === this.#epoch) this.#written.addBlock(block, words);
  }
}
