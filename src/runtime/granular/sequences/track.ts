/**
 * One column of one sequence: a block table of the manager, with the keys of its units. Units are numbered
 * from the start of the sequence.
 *
 * Units whose tokens are not told, or that may not be shared, have keys that nobody can look up. Behind such
 * a unit all are like that, since the key of a shared unit names everything before it.
 */

import { BlockKeys, type KeyChain, type KeyElements } from '../../keys/index.ts';
import { Entry, type Sequence } from '../../manager/sequences/blockTable/sequence.ts';
import type { Column } from '../columns.ts';

export class Track {
  readonly column: Column;
  readonly table: Sequence;
  /** Keys of the leading full units, as far as they were sealed or found. */
  readonly keys: BlockKeys = new BlockKeys();
  /** Tokens that have room. */
  tokens = 0;
  /** Units that blocks hold, each as often as it is held. */
  held = 0;
  /** Units from the front that were handed over to be sealed, or found. */
  sealed = 0;
  readonly #chain: KeyChain | null;
  readonly #freshKey: () => Uint32Array;
  #private: boolean;
  /** A unit that was sealed with fewer tokens than it has room for. */
  #tail: { readonly unit: number; readonly key: Uint32Array } | null = null;

  /** @param chain null where nothing is shared, @param freshKey gives a key that nothing else has */
  constructor(column: Column, table: Sequence, chain: KeyChain | null, freshKey: () => Uint32Array) {
    this.column = column;
    this.table = table;
    this.#chain = chain;
    this.#freshKey = freshKey;
    this.#private = chain === null;
  }

  get units(): number {
    return this.table.length;
  }

  /** Whether no unit can be found by its tokens from here on. */
  get isPrivate(): boolean {
    return this.#private;
  }

  stateOf(unit: number): Entry {
    return (unit < this.table.length ? this.table.state[unit] : Entry.NONE) as Entry;
  }

  /** The four words of the unit's key; undefined for one that was not sealed. */
  keyOf(unit: number): Uint32Array | undefined {
    if (unit < this.keys.length) return this.keys.words.slice(unit * 4, unit * 4 + 4);
    return this.#tail?.unit === unit ? this.#tail.key : undefined;
  }

  /** Makes the keys of the first `units` full units. @param tokens undefined where they are not told */
  hash(units: number, tokens: KeyElements | undefined): void {
    if (this.keys.length >= units) return;
    this.#tail = null;
    if (tokens === undefined) this.#private = true;
    if (!this.#private && this.#chain !== null && tokens !== undefined) {
      this.#chain.hashBlocks(tokens, this.keys.length, this.keys, units * this.column.tokensPerUnit);
    }
    while (this.keys.length < units) this.keys.append(this.#freshKey(), 0);
  }

  /** Makes the key of the last unit with `count` tokens, fewer than it has room for. */
  hashTail(unit: number, count: number, tokens: KeyElements | undefined): Uint32Array {
    const key = new Uint32Array(4);
    if (tokens === undefined) this.#private = true;
    if (this.#private || this.#chain === null || tokens === undefined) key.set(this.#freshKey());
    else this.#chain.hashPartial(tokens, unit, count, this.keys, key);
    this.#tail = { unit, key };
    return key;
  }

  /** The first units of another sequence with the same keys. */
  takeKeys(of: Track, units: number): void {
    for (let i = 0; i < units; i++) this.keys.append(of.keys.words, i * 4);
    this.#private ||= of.isPrivate;
  }

  /** The unit is written on: what was sealed of it is another unit's content. */
  reopen(unit: number): void {
    if (this.#tail?.unit === unit) this.#tail = null;
    this.shortenKeys(unit);
  }

  /** Forgets the keys of all but the first units. */
  shortenKeys(units: number): void {
    if (this.keys.length > units) this.keys.truncate(units);
    this.sealed = Math.min(this.sealed, units);
    if (this.#tail !== null && this.#tail.unit >= units) this.#tail = null;
  }
}
