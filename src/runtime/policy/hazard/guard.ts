/**
 * Whether the policy may follow its estimates, or is to evict as an LRU would. It compares what it finds with what an LRU of the
 * same size would find.
 */

export interface GuardOptions {
  readonly share: number;
  readonly least: number;
  readonly credit: number;
  readonly hold: number;
}

export class Guard {
  readonly #o: GuardOptions;
  /** Blocks that an LRU would have found beyond those that were found; negative while the policy is ahead. */
  #behind = 0;
  #lookups = 0;
  #left = 0;
  trips = 0;

  constructor(o: GuardOptions) {
    this.#o = o;
  }

  get asLru(): boolean {
    return this.#left > 0;
  }
  get behind(): number { return this.#behind; }

  lruFound(blocks: number): void {
    this.#behind += blocks;
  }

  /** A request begins. @param capacity blocks that the tiers hold */
  begin(blocks: number, found: number, capacity: number): void {
    const o = this.#o;
    if (this.#left > 0) {
      this.#left -= blocks;
      if (this.#left <= 0) this.#behind = Math.min(this.#behind, 0);
    } else {
      this.#behind = Math.max(this.#behind, -o.credit * capacity);
      if (this.#behind > o.least * capacity) { this.#left = o.hold * capacity; this.trips++; }
    }
    this.#lookups += blocks;
    this.#behind -= found;
  }
}
