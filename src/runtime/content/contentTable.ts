/**
 * What blocks *are*, wherever their copies lie: one row a content, with its key, its digest, the head of its replica
 * chain in each tier and the job that is bringing it into each tier. A content exists while a replica, a job or a
 * sequence's block table names it; it is in the prefix index for exactly as long.
 */

import type { Digest } from '../digest.ts';
import { invariant } from '../errors.ts';
import { PrefixIndex } from './prefixIndex.ts';

export const NO_CONTENT = -1;

export class ContentTable {
  readonly capacity: number;
  readonly tiers: number;
  readonly keys: Uint32Array;
  readonly sizeClass: Uint8Array;
  readonly tokens: Uint32Array;
  readonly digestLo: Uint32Array;
  readonly digestHi: Uint32Array;
  /** 1 once the digest is known, that is, once the first replica was sealed. */
  readonly sealed: Uint8Array;
  /** First replica in a tier, -1 for none; further ones follow in the replica table. Index: content * tiers + tier. */
  readonly replica: Int32Array;
  /** Job row that will make the content ready in a tier, -1 for none. Index: content * tiers + tier. */
  readonly incoming: Int32Array;
  /** When the content last left HBM downwards, in microseconds; NaN if never. */
  readonly offloadedAtUs: Float64Array;
  readonly index: PrefixIndex;
  readonly #uses: Int32Array;
  readonly #free: Int32Array;
  #freeCount: number;

  constructor(capacity: number, tiers: number) {
    this.capacity = capacity;
    this.tiers = tiers;
    this.keys = new Uint32Array(capacity * 4);
    this.sizeClass = new Uint8Array(capacity);
    this.tokens = new Uint32Array(capacity);
    this.digestLo = new Uint32Array(capacity);
    this.digestHi = new Uint32Array(capacity);
    this.sealed = new Uint8Array(capacity);
    this.replica = new Int32Array(capacity * tiers).fill(-1);
    this.incoming = new Int32Array(capacity * tiers).fill(-1);
    this.offloadedAtUs = new Float64Array(capacity).fill(Number.NaN);
    this.index = new PrefixIndex(this.keys, capacity);
    this.#uses = new Int32Array(capacity);
    this.#free = new Int32Array(capacity);
    for (let i = 0; i < capacity; i++) this.#free[i] = capacity - 1 - i;
    this.#freeCount = capacity;
  }

  get count(): number {
    return this.capacity - this.#freeCount;
  }

  /** Content with the key at `keys[at..at + 4)`, or NO_CONTENT. */
  find(keys: Uint32Array, at: number): number {
    return this.index.find(keys, at);
  }

  /** The content with this key, made if it is new. It lives from the first `hold`. */
  intern(keys: Uint32Array, at: number, sizeClass: number, tokens: number): number {
    const known = this.index.find(keys, at);
    if (known !== -1) return known;
    invariant(this.#freeCount > 0, 'there are as many contents as slots and jobs');
    const content = this.#free[--this.#freeCount]!;
    for (let w = 0; w < 4; w++) this.keys[content * 4 + w] = keys[at + w]!;
    this.sizeClass[content] = sizeClass;
    this.tokens[content] = tokens;
    this.sealed[content] = 0;
    this.offloadedAtUs[content] = Number.NaN;
    this.index.add(content);
    return content;
  }

  hold(content: number): void {
    this.#uses[content]!++;
  }

  unhold(content: number): void {
    invariant(this.#uses[content]! > 0, 'a content is let go as often as it was held');
    if (--this.#uses[content]! > 0) return;
    this.index.delete(content);
    this.#free[this.#freeCount++] = content;
  }

  uses(content: number): number {
    return this.#uses[content]!;
  }

  digest(content: number): Digest {
    return { lo: this.digestLo[content]!, hi: this.digestHi[content]! };
  }

  key(content: number): Uint32Array {
    return this.keys.slice(content * 4, content * 4 + 4);
  }

  checkIntegrity(): void {
    this.index.checkIntegrity();
    invariant(this.index.size === this.count, 'the index holds every content');
  }
}
