/** Amounts by name over a window that slides: each counts until it is as old as the window. */

import type { PlainState, Stateful } from '../../policy.ts';

interface Entry {
  readonly timeUs: number;
  readonly name: number | string;
  readonly amount: number;
}

export class RecentAmounts implements Stateful {
  readonly #windowUs: number;
  /** In order of time. */
  #entries: Entry[] = [];
  readonly #sums = new Map<number | string, { entries: number; sum: number }>();

  constructor(windowUs: number) {
    this.#windowUs = windowUs;
  }

  add(name: number | string, amount: number, timeUs: number): void {
    this.#entries.push({ timeUs, name, amount });
    const kept = this.#sums.get(name);
    if (kept === undefined) this.#sums.set(name, { entries: 1, sum: amount });
    else {
      kept.entries++;
      kept.sum += amount;
    }
  }

  /** Sum of what was added under the name in the window that ends at `nowUs`. */
  sum(name: number | string, nowUs: number): number {
    this.#forget(nowUs);
    return this.#sums.get(name)?.sum ?? 0;
  }

  /** The sums of all names of the window, in order of their first entries. */
  sums(nowUs: number): readonly number[] {
    this.#forget(nowUs);
    return [...this.#sums.values()].map(({ sum }) => sum);
  }

  #forget(nowUs: number): void {
    let old = 0;
    for (; old < this.#entries.length && this.#entries[old].timeUs <= nowUs - this.#windowUs; old++) {
      const { name, amount } = this.#entries[old];
      const kept = this.#sums.get(name);
      if (kept === undefined) continue;
      kept.entries--;
      kept.sum -= amount;
      // so that no rest of a rounding is left of a name
      if (kept.entries === 0) this.#sums.delete(name);
    }
    if (old > 0) this.#entries.splice(0, old);
  }

  snapshot(): PlainState {
    return {
      entries: this.#entries.map((entry) => ({ ...entry })),
      sums: [...this.#sums].map(([name, kept]) => ({ name, ...kept })),
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as unknown as {
      entries: readonly Entry[];
      sums: readonly { name: number | string; entries: number; sum: number }[];
    };
    this.#entries = [...saved.entries];
    this.#sums.clear();
    for (const { name, entries, sum } of saved.sums) this.#sums.set(name, { entries, sum });
  }
}
