/** A sequence of a pool: its columns, the descriptors that were given out of it, and its tokens, as told. */

import { elementAt, type KeyElements } from '../../keys/index.ts';
import { Tier } from '../../tier/tier.ts';
import type { KVBlockDescriptor } from '../descriptor.ts';
import type { Track } from './track.ts';

export class PoolSequence {
  readonly id: string;
  readonly tenant: string;
  readonly tracks: Map<string, Track> = new Map();
  /** In the order in which they were allocated. */
  readonly descriptors: Set<KVBlockDescriptor> = new Set();
  /** Of these, blocks that cannot be found by their tokens yet. */
  readonly unnamed: Set<KVBlockDescriptor> = new Set();
  /** Blocks that are to go to a lower tier once they are sealed. */
  readonly leaving: Set<KVBlockDescriptor> = new Set();
  /** The block that has a track's last unit. */
  readonly last: Map<Track, KVBlockDescriptor> = new Map();
  #tokens: number[] = [];

  constructor(id: string, tenant: string) {
    this.id = id;
    this.tenant = tenant;
  }

  /** Tokens that were told. */
  get tokens(): readonly number[] {
    return this.#tokens;
  }

  add(block: KVBlockDescriptor): void {
    this.descriptors.add(block);
    this.unnamed.add(block);
    if (block.preferredTier !== Tier.HBM) this.leaving.add(block);
    for (const { track } of block.units) this.last.set(track, block);
    this.#count(block, 1);
  }

  remove(block: KVBlockDescriptor): void {
    this.descriptors.delete(block);
    this.unnamed.delete(block);
    this.leaving.delete(block);
    for (const { track } of block.units) if (this.last.get(track) === block) this.last.delete(track);
    this.#count(block, -1);
  }

  /** The block's units change in `change`. */
  alter(block: KVBlockDescriptor, change: () => void): void {
    this.#count(block, -1);
    change();
    this.#count(block, 1);
    this.unnamed.add(block);
  }

  #count({ units }: KVBlockDescriptor, by: 1 | -1): void {
    for (const { track } of units) track.held += by;
  }

  /** The first token that was told to be another one, or -1. */
  firstDifference(tokens: KeyElements): number {
    const count = Math.min(tokens.length, this.#tokens.length);
    for (let i = 0; i < count; i++) if (this.#tokens[i] !== elementAt(tokens, i)) return i;
    return -1;
  }

  learn(tokens: KeyElements): void {
    for (let i = this.#tokens.length; i < tokens.length; i++) this.#tokens.push(elementAt(tokens, i));
  }

  forgetFrom(tokens: number): void {
    if (this.#tokens.length > tokens) this.#tokens.length = tokens;
  }
}
