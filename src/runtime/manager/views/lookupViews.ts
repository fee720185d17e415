/**
 * What a chain of keys would find, where a block lies, and whether what is missing would fit. Nothing here
 * changes or counts anything.
 */

import type { Digest } from '../../digest.ts';
import { invariant } from '../../errors.ts';
import type { DecisionSink } from '../../log/decisionSink.ts';
import { type ManagerConfig, type ResolvedConfig, resolveConfig } from '../config.ts';
import { Core, HBM } from '../core.ts';
import { lackingBytes, unaskedBytes } from '../jobs/unasked.ts';
import { lookup, type Match, matchLength, matchLengths } from './lookup.ts';
import { type BlockPlace, placeOf } from './place.ts';

export abstract class LookupViews {
  readonly config: ResolvedConfig;

  protected readonly core: Core;

  /** Contents of the leading blocks that the last match found. */
  protected found: Int32Array = new Int32Array(64);

  /** @throws TKV_CONFIG with the field at fault */
  constructor(config: ManagerConfig, sink: DecisionSink | null = null) {
    this.config = resolveConfig(config);
    this.core = new Core(this.config, sink, config.tableMemory);
  }

  /** Whether no cached block lacks its prefix, so that lookups need not walk. */
  get prefixesAreWhole(): boolean {
    return this.core.contents.holes === 0;
  }

  /**
   * What a request with these keys would find. Changes nothing, counts nothing. `keys` holds four words a
   * block.
   */
  lookup(keys: Uint32Array, count: number): Match {
    return lookup(this.core, keys, count);
  }

  /** Leading blocks of the chain that are ready or on their way: the fast form of `lookup`. */
  matchLength(keys: Uint32Array, count: number): number {
    return matchLength(this.core, keys, count);
  }

  /**
   * `out[r] = matchLength` of each of `requests` chains: for a scheduler or router that looks at its whole
   * queue. Chain r has `counts[r]` blocks, and their keys lie in `keys` from block `firsts[r]` on, four words
   * a block; chains may overlap and be empty. One chain's lookup is a few memory accesses that wait for each
   * other, and with many blocks resident that wait is most of it; here the chains take each of the
   * ceil(log2(blocks)) + 2 steps together and wait together. The more blocks are resident and the more chains
   * are asked for, the more it gains. Changes nothing, counts nothing.
   */
  matchLengths(
    keys: Uint32Array,
    firsts: Uint32Array,
    counts: Uint32Array,
    out: Uint32Array,
    requests: number = counts.length,
  ): void {
    invariant(
      firsts.length >= requests && counts.length >= requests && out.length >= requests,
      'a first key, a count and a place for the answer a request',
    );
    matchLengths(this.core, keys, firsts, counts, out, requests);
  }

  /** The key of a block that is there or on its way, by its number. */
  contentKey(content: number): Uint32Array {
    return this.core.contents.key(content);
  }

  /**
   * Content numbers of the leading blocks that are ready or on their way. A number is reused once its content
   * is gone.
   */
  blockIds(keys: Uint32Array, count: number): number[] {
    return Array.from(this.found.subarray(0, this.match(keys, count)));
  }

  /** Where the block with this key lies ready, in the fastest tier that has it. Nothing holds it there. */
  locate(key: Uint32Array): BlockPlace | undefined {
    const content = this.core.contents.find(key, 0);
    const replica = content === -1 ? -1 : this.core.fastestReady(content, HBM);
    return replica === -1 ? undefined : placeOf(this.core, replica);
  }

  /** The digest that the block with this key must have; undefined for one that is not known or not sealed. */
  digestOf(key: Uint32Array): Digest | undefined {
    const { contents } = this.core;
    const content = contents.find(key, 0);
    return content === -1 || contents.sealed[content] === 0 ? undefined : contents.digest(content);
  }

  /** Whether `count` more units of a size class would fit HBM beside what cannot be evicted. */
  canAllocate(count: number, sizeClass = 0, owner = 0): boolean {
    return this.hasRoomFor(count * this.core.unitBytes(sizeClass), owner);
  }

  /**
   * Whether so many bytes more of the owner would fit HBM beside what cannot be evicted for it. Loads that no
   * sequence asked for make room.
   */
  hasRoomFor(bytes: number, owner = 0): boolean {
    const lacking = lackingBytes(this.core, bytes, owner);
    return lacking === 0 || lacking <= unaskedBytes(this.core, owner);
  }

  /** Bytes of HBM on their way up for nobody, which the owner's sequences may take. */
  unaskedBytes(owner = 0): number {
    return unaskedBytes(this.core, owner);
  }

  /**
   * Whether a sequence of `units` units, the first `matched` of which are found under `keys`, would fit HBM
   * once those are pinned: the check before `open`, `load` and `allocate` for callers that want all or
   * nothing.
   */
  canOpen(keys: Uint32Array, matched: number, units: number, sizeClass = 0, owner = 0): boolean {
    const found = this.match(keys, matched);
    return this.canAllocate(units - this.heldAlready(found), sizeClass, owner);
  }

  /** Bytes that such a sequence would take of HBM beside what is held there already. */
  bytesToOpen(keys: Uint32Array, matched: number, units: number, sizeClass = 0): number {
    const found = this.match(keys, matched);
    return (units - this.heldAlready(found)) * this.core.unitBytes(sizeClass);
  }

  /**
   * Finds the leading blocks that are ready or on their way. @returns how many; `found` has their contents
   */
  protected match(keys: Uint32Array, count: number): number {
    const matched = this.matchLength(keys, count);
    if (matched > this.found.length) this.found = new Int32Array(matched * 2);
    for (let i = 0; i < matched; i++) {
      this.found[i] = this.core.contents.find(keys, i * 4);
      // Only keys that are not chained, though the configuration says so, have gaps that the search jumps.
      if (this.found[i] === -1) return i;
    }
    return matched;
  }

  /** Of the blocks just matched, those in HBM that other sequences hold anyway. */
  protected heldAlready(matched: number): number {
    const core = this.core;
    let held = 0;
    for (let i = 0; i < matched; i++) {
      const ready = core.readyIn(this.found[i], HBM);
      if (ready !== -1 && core.replicas.refs[ready] > 0) held++;
    }
    return held;
  }
}
