/**
 * Whether the policy may follow its estimates, or is to evict as an LRU would. First it learns. Then it
 * compares what it found with what an LRU of the same size would have found: the estimates may lose what they
 * have won before, and on top of that a small share of all lookups and as much as one mean request. While the
 * policy evicts as an LRU would, both find about the same, the share grows with each lookup, and the
 * estimates get another try.
 */

import type { StateVisitor } from '../../snapshot/index.ts';

/** Returns that are to be seen before the estimates are followed at all; a whole cohort counts as one. */
const EVIDENCE = 128;
/**
 * Lookups, in multiples of what the tiers hold, before the estimates are followed: until then nobody has seen
 * what becomes of a block over the time that the cache can keep it.
 */
const LEARNING = 4;
/**
 * Lookups, in multiples of what the tiers hold, after which both counts are halved, so that the past weighs
 * less.
 */
const MEMORY = 1024;

export class Guard {
  readonly #share: number;
  /** Blocks that an LRU would have found beyond those that were found; negative while the policy is ahead. */
  #behind = 0;
  #lookups = 0;
  #requests = 1;
  #asLru = false;

  /** @param share of all lookups by which the policy may be behind an LRU; 1 for no guard */
  constructor(share: number) {
    this.#share = share;
  }

  get asLru(): boolean {
    return this.#asLru;
  }

  get behind(): number {
    return this.#behind;
  }

  lruFound(blocks: number): void {
    this.#behind += blocks;
  }

  /**
   * A request for `blocks` begins.
   * @param capacity blocks that the tiers hold
   * @param evidence returns seen so far
   */
  begin(blocks: number, found: number, capacity: number, evidence: number): void {
    const young = evidence < EVIDENCE || this.#lookups < LEARNING * capacity;
    this.#asLru = young || this.#behind > (this.#share + 1 / this.#requests) * this.#lookups;
    this.#lookups += blocks;
    this.#requests++;
    this.#behind -= found;
    if (this.#lookups > MEMORY * (capacity + blocks)) {
      this.#lookups *= 0.5;
      this.#behind *= 0.5;
      this.#requests *= 0.5;
    }
  }

  visitState(visitor: StateVisitor): void {
    this.#behind = visitor.number(this.#behind);
    this.#lookups = visitor.number(this.#lookups);
    this.#requests = visitor.number(this.#requests);
    this.#asLru = visitor.flag(this.#asLru);
  }
}
