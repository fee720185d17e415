/**
 * Events counted over a window that slides in tenths: ten whole cells and the one under way. The rate is over
 * the time that the cells cover, so it needs no correction at the start of a run.
 */

const CELLS = 10;

export class RateWindow {
  readonly #cellUs: number;
  /** Counts of the last `CELLS + 1` cells; cell n lies at n mod (CELLS + 1). */
  readonly #counts: Float64Array = new Float64Array(CELLS + 1);
  /** Cell under way. */
  #cell = 0;

  constructor(windowUs: number) {
    this.#cellUs = Math.max(1, Math.ceil(windowUs / CELLS));
  }

  add(nowUs: number, count: number = 1): void {
    this.#advance(nowUs);
    this.#counts[this.#cell % (CELLS + 1)] += count;
  }

  /** Events a second over the window that ends at `nowUs`; over what has passed where that is less. */
  rate(nowUs: number): number {
    this.#advance(nowUs);
    let sum = 0;
    for (const count of this.#counts) sum += count;
    const firstUs = Math.max(0, this.#cell - CELLS) * this.#cellUs;
    return perSecond(sum, nowUs - firstUs);
  }

  /** Events a second over the last whole cell and the one under way. */
  recentRate(nowUs: number): number {
    this.#advance(nowUs);
    const firstUs = Math.max(0, this.#cell - 1) * this.#cellUs;
    const last = this.#cell === 0 ? 0 : this.#counts[(this.#cell - 1) % (CELLS + 1)];
    return perSecond(last + this.#counts[this.#cell % (CELLS + 1)], nowUs - firstUs);
  }

  #advance(nowUs: number): void {
    const cell = Math.floor(nowUs / this.#cellUs);
    if (cell <= this.#cell) return;
    const passed = Math.min(cell - this.#cell, CELLS + 1);
    for (let i = 1; i <= passed; i++) this.#counts[(cell - passed + i) % (CELLS + 1)] = 0;
    this.#cell = cell;
  }

  snapshot(): { readonly cell: number; readonly counts: Float64Array } {
    return { cell: this.#cell, counts: this.#counts.slice() };
  }

  restore(state: { readonly cell: number; readonly counts: Float64Array }): void {
    this.#cell = state.cell;
    this.#counts.set(state.counts);
  }
}

/** A rate needs some time to have passed; before the first millisecond it is taken over one. */
function perSecond(events: number, elapsedUs: number): number {
  return (events * 1e6) / Math.max(elapsedUs, 1000);
}
