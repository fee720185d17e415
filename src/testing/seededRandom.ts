/**
 * Random numbers that a seed repeats, for tests. The generator is a Weyl sequence through the finalizer of
 * MurmurHash3 (the same mix as in pattern.ts); good enough to choose slots and sizes, not for statistics.
 * Suites name their seed in the test's title, and TIERKV_SEED sets it, so that a failure can be run again.
 */

export class SeededRandom {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** An unsigned 32-bit integer. */
  word(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let x = this.#state;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    return (x ^ (x >>> 16)) >>> 0;
  }

  /** An integer from 0 up to, but not including, `limit`. */
  below(limit: number): number {
    return Math.floor((this.word() / 2 ** 32) * limit);
  }

  /** True with probability `share`. */
  chance(share: number): boolean {
    return this.word() / 2 ** 32 < share;
  }

  /** `count` different integers below `limit`, in random order. */
  distinctBelow(limit: number, count: number): number[] {
    const chosen = new Set<number>();
    while (chosen.size < Math.min(count, limit)) chosen.add(this.below(limit));
    return [...chosen];
  }
}

/** TIERKV_SEED where it is set, else `fallback`. */
export function testSeed(fallback: number): number {
  const given = Number(process.env.TIERKV_SEED);
  return Number.isSafeInteger(given) && given !== 0 ? given : fallback;
}
