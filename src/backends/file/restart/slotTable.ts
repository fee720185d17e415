/**
 * What the store knows of the record in each slot, in the form in which the index file keeps it: an entry of
 * 16 words a slot, 0 for none. Memory grows with the highest slot that was written.
 *
 *      0          8          16       32       40           44              48       64
 *      +----------+----------+--------+--------+------------+---------------+--------+
 *      | sequence | last use | key    | digest | generation | class, tokens | parent |
 *      +----------+----------+--------+--------+------------+---------------+--------+
 *
 * The class stands in the upper 8 bits of its word. `last use` is the number of the record that was written
 * last when this one was read or written last: the order of use.
 */

import type { Digest } from '../../../runtime/digest.ts';
import { invariant } from '../../../runtime/errors.ts';
import type { PoolShape } from '../../../runtime/pool/shape.ts';
import { parentIn, setDigest, setParent, setWide, wide } from '../record/words.ts';
import { ENTRIES_PER_BLOCK, ENTRY_WORDS, HEAD_WORDS } from './indexFile/indexBlocks.ts';

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
  /** Bit h: the block in half h of the index file is not what this table says. */
  #stale: Uint8Array = new Uint8Array(0);
  #records = 0;

  /** Slots that have a record. */
  get records(): number {
    return this.#records;
  }

  /** Blocks up to the highest slot that was ever set. */
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
   * Whether a store of that shape can have made the slot's entry by the time that it had written `sequence`
   * records. A slot without a record fits too.
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
    invariant(this.sequenceOf(slot) !== 0, 'the slot has a record');
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

  /** A record was used at `clock`. No block gets stale: the order of use alone is not worth writes. */
  use(slot: number, clock: number): void {
    if (this.sequenceOf(slot) !== 0) setWide(this.#words, slot * ENTRY_WORDS + 2, clock);
  }

  /** Slots that have a record, the one used longest ago first. */
  byLastUse(): Uint32Array {
    const slots = new Uint32Array(this.#records);
    let count = 0;
    const limit = this.#words.length / ENTRY_WORDS;
    for (let slot = 0; slot < limit; slot++) if (this.sequenceOf(slot) !== 0) slots[count++] = slot;
    const words = this.#words;
    const lastUse = (slot: number): number => wide(words, slot * ENTRY_WORDS + 2);
    return slots.sort((a, b) => lastUse(a) - lastUse(b) || this.sequenceOf(a) - this.sequenceOf(b));
  }

  isStale(block: number, half: number): boolean {
    return (this.#stale[block] & (1 << half)) !== 0;
  }

  makeStale(half: number): void {
    for (let block = 0; block < this.#stale.length; block++) this.#stale[block] |= 1 << half;
  }

  /** Copies a block's entries behind the head of an index block; from here on the half has them. */
  copyOut(block: number, half: number, into: Uint32Array): void {
    const at = block * ENTRIES_PER_BLOCK * ENTRY_WORDS;
    into.fill(0);
    into.set(this.#words.subarray(at, at + ENTRIES_PER_BLOCK * ENTRY_WORDS), HEAD_WORDS);
    this.#stale[block] &= ~(1 << half);
  }

  /** The block did not reach the half after all. */
  copyFailed(block: number, half: number): void {
    this.#stale[block] |= 1 << half;
  }

  /** Takes a block's entries as half `half` of the index file has them. */
  copyIn(block: number, half: number, from: Uint32Array): void {
    const first = block * ENTRIES_PER_BLOCK;
    this.cover(block);
    this.#words.set(from.subarray(HEAD_WORDS), first * ENTRY_WORDS);
    for (let slot = first; slot < first + ENTRIES_PER_BLOCK; slot++) {
      if (this.sequenceOf(slot) !== 0) this.#records++;
    }
    this.#stale[block] = 3 & ~(1 << half);
  }

  /** Forgets what lies at `slotLimit` and above. */
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

  /** Has room for the block's slots; until they are copied to a half, neither has them. */
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
