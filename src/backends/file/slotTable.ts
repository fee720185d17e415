/**
 * The table of the records in all slots, in the form of the index file, and the marks of regions that were
 * written since the last checkpoint. An entry is 16 words; all zeros for an empty slot. Memory grows with the
 * highest slot that was written.
 *
 *      0          8          16       32       40           44              48       64
 *      +----------+----------+--------+--------+------------+---------------+--------+
 *      | sequence | last use | key    | digest | generation | class, tokens | parent |
 *      +----------+----------+--------+--------+------------+---------------+--------+
 *
 * The class is in the upper 8 bits of its word. `last use` orders records by use: it is the number of the
 * newest record at the time when this record was last read or written.
 */

import type { Digest } from '../../runtime/digest.ts';
import { invariant } from '../../runtime/errors.ts';
import type { PoolShape } from '../../runtime/tables/slotPool.ts';
import type { DataFile } from './dataFile.ts';
import {
  BlockKind,
  blockOffset,
  bytesOf,
  ENTRIES_PER_BLOCK,
  ENTRY_WORDS,
  HEAD_WORDS,
  type IndexGeometry,
  REGIONS_PER_BLOCK,
  RegionBits,
  sealBlock,
} from './indexBlocks.ts';
import { parentIn, setDigest, setParent, setWide, wide } from './record.ts';

const TOKENS_MAX = 0xff_ffff;

export interface SlotEntry {
  readonly slot: number;
  readonly sizeClass: number;
  readonly generation: number;
  readonly key: Uint32Array;
  readonly digest: Digest;
  readonly tokens: number;
  readonly sequence: number;
  readonly lastUse: number;
  readonly parent: Uint32Array | undefined;
}

export class SlotTable {
  #words: Uint32Array = new Uint32Array(0);
  /** Stale halves by block: bit h is set if half h of the index file differs from this table. */
  #stale: Uint8Array = new Uint8Array(0);
  #records = 0;

  /** Number of slots that have a record. */
  get records(): number {
    return this.#records;
  }

  /** Number of blocks up to the highest slot that was ever set. */
  get blocks(): number {
    return this.#stale.length;
  }

  sequenceOf(slot: number): number {
    const at = slot * ENTRY_WORDS;
    return at < this.#words.length ? wide(this.#words, at) : 0;
  }

  sizeClassOf(slot: number): number {
    return this.#words[slot * ENTRY_WORDS + 11] >>> 24;
  }

  /**
   * Whether a store of that shape can have made the slot's entry after it had written `sequence` records. An
   * empty slot fits too.
   */
  fits(slot: number, { slotsPerPage, slotsPerPageMax }: PoolShape, sequence: number): boolean {
    if (this.sequenceOf(slot) === 0) return true;
    const at = slot * ENTRY_WORDS;
    return (
      slot % slotsPerPageMax < (slotsPerPage[this.sizeClassOf(slot)] ?? 0) &&
      this.#words[at + 10] > 0 &&
      this.sequenceOf(slot) <= sequence &&
      wide(this.#words, at + 2) <= sequence
    );
  }

  entry(slot: number): SlotEntry {
    const words = this.#words;
    const at = slot * ENTRY_WORDS;
    invariant(this.sequenceOf(slot) !== 0, 'the slot must have a record');
    return {
      slot,
      sizeClass: words[at + 11] >>> 24,
      generation: words[at + 10],
      key: words.slice(at + 4, at + 8),
      digest: { lo: words[at + 8], hi: words[at + 9] },
      tokens: words[at + 11] & TOKENS_MAX,
      sequence: wide(words, at),
      lastUse: wide(words, at + 2),
      parent: parentIn(words, at + 12),
    };
  }

  set(entry: SlotEntry): void {
    const { slot } = entry;
    this.cover(Math.floor(slot / ENTRIES_PER_BLOCK));
    if (this.sequenceOf(slot) === 0) this.#records++;
    const words = this.#words;
    const at = slot * ENTRY_WORDS;
    setWide(words, at, entry.sequence);
    setWide(words, at + 2, entry.lastUse);
    words.set(entry.key, at + 4);
    setDigest(words, at + 8, entry.digest);
    words[at + 10] = entry.generation;
    words[at + 11] = (entry.sizeClass << 24) | Math.min(entry.tokens, TOKENS_MAX);
    setParent(words, at + 12, entry.parent);
    this.#touchBlock(slot);
  }

  clear(slot: number): void {
    if (this.sequenceOf(slot) === 0) return;
    const at = slot * ENTRY_WORDS;
    this.#words.fill(0, at, at + ENTRY_WORDS);
    this.#records--;
    this.#touchBlock(slot);
  }

  /** Notes that the record was used. The block stays up to date: the order of use is not worth a write. */
  use(slot: number, clock: number): void {
    if (this.sequenceOf(slot) !== 0) setWide(this.#words, slot * ENTRY_WORDS + 2, clock);
  }

  /** Slots that have a record, least recently used first. */
  byLastUse(): Uint32Array {
    const slots = new Uint32Array(this.#records);
    let count = 0;
    const limit = this.#words.length / ENTRY_WORDS;
    for (let slot = 0; slot < limit; slot++) if (this.sequenceOf(slot) !== 0) slots[count++] = slot;
    const words = this.#words;
    const lastUse = (slot: number): number => wide(words, slot * ENTRY_WORDS + 2);
    return slots.sort((a, b) => lastUse(a) - lastUse(b) || this.sequenceOf(a) - this.sequenceOf(b));
  }

  /** Records, least recently used first. A block comes after all that continue it: it was used whenever they were. */
  chainsByLastUse(): SlotEntry[] {
    const entries = Array.from(this.byLastUse(), (slot) => this.entry(slot));
    const byKey = new Map(entries.map((entry) => [entry.key.join(), entry]));
    const taken = new Set<SlotEntry>();
    const ordered: SlotEntry[] = [];
    for (const latest of entries.reverse()) {
      const chain: SlotEntry[] = [];
      let next: SlotEntry | undefined = latest;
      while (next !== undefined && !taken.has(next)) {
        chain.push(next);
        taken.add(next);
        next = next.parent && byKey.get(next.parent.join());
      }
      ordered.push(...chain.reverse());
    }
    return ordered.reverse();
  }

  isStale(block: number, half: number): boolean {
    return (this.#stale[block] & (1 << half)) !== 0;
  }

  makeStale(half: number): void {
    for (let block = 0; block < this.#stale.length; block++) this.#stale[block] |= 1 << half;
  }

  /** Copies a block's entries into an index block, behind its head. The half then counts as up to date. */
  copyOut(block: number, half: number, into: Uint32Array): void {
    const at = block * ENTRIES_PER_BLOCK * ENTRY_WORDS;
    into.fill(0);
    into.set(this.#words.subarray(at, at + ENTRIES_PER_BLOCK * ENTRY_WORDS), HEAD_WORDS);
    this.#stale[block] &= ~(1 << half);
  }

  /** Takes back `copyOut`: the block was not written. */
  copyFailed(block: number, half: number): void {
    this.#stale[block] |= 1 << half;
  }

  /** Takes over a block's entries from half `half` of the index file. */
  copyIn(block: number, half: number, from: Uint32Array): void {
    const first = block * ENTRIES_PER_BLOCK;
    this.cover(block);
    this.#words.set(from.subarray(HEAD_WORDS), first * ENTRY_WORDS);
    for (let slot = first; slot < first + ENTRIES_PER_BLOCK; slot++) {
      if (this.sequenceOf(slot) !== 0) this.#records++;
    }
    this.#stale[block] = 3 & ~(1 << half);
  }

  /** Drops the entries of slots from `slotLimit` on. */
  truncate(slotLimit: number): void {
    const limit = this.#words.length / ENTRY_WORDS;
    for (let slot = slotLimit; slot < limit; slot++) this.clear(slot);
    const blocks = Math.min(this.#stale.length, Math.ceil(slotLimit / ENTRIES_PER_BLOCK));
    this.#words = this.#words.slice(0, blocks * ENTRIES_PER_BLOCK * ENTRY_WORDS);
    this.#stale = this.#stale.slice(0, blocks);
  }

  #touchBlock(slot: number): void {
    this.#stale[Math.floor(slot / ENTRIES_PER_BLOCK)] = 3;
  }

  /** Makes room for the block's slots. Both halves then count as stale. */
  cover(block: number): void {
    const needed = block + 1;
    const had = this.#stale.length;
    if (needed <= had) return;
    const blocks = Math.max(needed, Math.ceil(had * 1.5));
    const words = new Uint32Array(blocks * ENTRIES_PER_BLOCK * ENTRY_WORDS);
    words.set(this.#words);
    this.#words = words;
    const stale = new Uint8Array(blocks).fill(3, had);
    stale.set(this.#stale);
    this.#stale = stale;
  }
}

// ---- marks: regions of the data file that may differ from the last finished checkpoint
//
// A region's mark is in the index file before the first record of the epoch is written into the region, so
// after a crash only marked regions have to be read. Marks that are needed at the same time are written
// together. A region is marked once an epoch; further writes to it cost nothing.

export class RegionMarks {
  readonly #file: DataFile;
  readonly #geometry: IndexGeometry;
  readonly #store: Digest;
  #wanted: RegionBits = new RegionBits();
  #written: RegionBits = new RegionBits();
  /** Number of writes under way, by region. A write that spans two epochs counts in both. */
  readonly #inFlight: Map<number, number> = new Map();
  /**
   * Writes of MARK blocks, by block. Writes of one block follow each other, in any epoch, so that an older
   * state never overwrites a newer one.
   */
  readonly #writes: Map<number, SharedRun> = new Map();
  /** How often what was written came to count as not written. */
  #forgotten = 0;
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

  /** Takes over marks that were loaded, and so are in the file already. */
  restore(marked: RegionBits): void {
    for (const region of marked.below(this.#geometry.regions)) {
      this.#wanted.add(region);
      this.#written.add(region);
    }
  }

  /**
   * Announces a write to each region; `end` must follow each write.
   * @returns fulfilled once the marks are in the file, rejected with the errno as `code`; undefined if they
   * are there already
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
    invariant(left >= 0, 'a write must end once');
    if (left === 0) this.#inFlight.delete(region);
    else this.#inFlight.set(region, left);
  }

  /** Begins an epoch, with marks for the writes under way. @returns fulfilled once they are in the file */
  advance(epoch: number): Promise<void> {
    this.#epoch = epoch;
    this.#wanted = new RegionBits();
    this.#written = new RegionBits();
    for (const region of this.#inFlight.keys()) this.#wanted.add(region);
    return this.writeAll();
  }

  /** The marks may not be in the file: they are written again before the next write to its regions. */
  forgetWritten(): void {
    this.#written = new RegionBits();
    this.#forgotten++;
  }

  /** Writes every MARK block that differs from the file. */
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
   * Writes the block as it is now. It includes marks that were asked for in an earlier epoch, since the write
   * that needs such a mark is still in flight.
   */
  async #write(block: number): Promise<void> {
    const epoch = this.#epoch;
    const forgotten = this.#forgotten;
    const words = this.#wanted.block(block);
    sealBlock(words, BlockKind.MARK, block, this.#store, epoch);
    await this.#file.writev([bytesOf(words)], blockOffset(this.#geometry, epoch, BlockKind.MARK, block));
    if (epoch === this.#epoch && forgotten === this.#forgotten) this.#written.addBlock(block, words);
  }
}

// ---- shared runs

/** Merges requests: one run serves all requests made before it began. At most one further run waits. */
export class SharedRun {
  readonly #work: () => Promise<void>;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(work: () => Promise<void>) {
    this.#work = work;
  }

  /** Whether a run is waiting to begin. */
  get isAwaited(): boolean {
    return this.#next !== undefined;
  }

  /** Asks for a run that begins after this call. @returns its end */
  ask(): Promise<void> {
    if (this.#next !== undefined) return this.#next;
    const turn = (): Promise<void> => {
      this.#running = this.#next;
      this.#next = undefined;
      return this.#work().finally(() => {
        this.#running = undefined;
      });
    };
    this.#next = (this.#running ?? Promise.resolve()).then(turn, turn);
    return this.#next;
  }
}
