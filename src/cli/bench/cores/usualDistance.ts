/** Whether the cores are as far apart as they have mostly been lately. */

const REMEMBERED = 501;
/** Threads of one core, cores under one cache and cores apart differ by more than that. */
const FACTOR = 1.4;

export class UsualDistance {
  readonly #lookNs: () => number;
  readonly #looks: number[] = [];

  constructor(lookNs: () => number) {
    this.#lookNs = lookNs;
  }

  /** Looks now. A look that says nothing is no reason to doubt. */
  asUsual(): boolean {
    const ns = this.#lookNs();
    if (ns === 0) return true;
    this.#looks.push(ns);
    if (this.#looks.length > REMEMBERED) this.#looks.shift();
    const usualNs = Float64Array.from(this.#looks).sort()[this.#looks.length >> 1];
    return ns < usualNs * FACTOR && ns > usualNs / FACTOR;
  }
}
