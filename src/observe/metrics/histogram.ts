/**
 * Counts of values by bucket, cheap enough for each block of each request: observing one is a search among some twenty
 * bounds and two additions, and allocates nothing.
 */

export class ValueHistogram {
  readonly bounds: readonly number[];
  /** Counts by bound, then above all bounds; not cumulative. */
  readonly counts: Float64Array;
  sum = 0;
  count = 0;
  #told: ((value: number) => void)[] | null = null;

  /** @param bounds upper bounds, inclusive, ascending */
  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  /** Counts a finite value; others are ignored. */
  observe(value: number): void {
    if (!Number.isFinite(value)) return;
    const { bounds } = this;
    let low = 0;
    let high = bounds.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (value <= bounds[middle]) high = middle;
      else low = middle + 1;
    }
    this.counts[low]++;
    this.count++;
    this.sum += value;
    if (this.#told !== null) for (const told of this.#told) told(value);
  }

  /** Tells of each value from now on, for an exporter that keeps histograms of its own. @returns what ends it */
  tellOf(told: (value: number) => void): () => void {
    this.#told = [...(this.#told ?? []), told];
    return () => {
      const left = this.#told?.filter((each) => each !== told) ?? [];
      this.#told = left.length === 0 ? null : left;
    };
  }
}

/** Seconds: of transfers, which take from microseconds to the deadline. */
export const transferBounds: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** Seconds: of requests and their parts. */
export const requestBounds: readonly number[] = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
];

/** Tokens: of prompts and answers, as vLLM cuts them. */
export const tokenBounds: readonly number[] = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
];

/** Seconds: of blocks, which may be kept for hours. */
export const blockBounds: readonly number[] = [...requestBounds, 300, 600, 1800, 3600, 10_800, 43_200];
