/** Bytes that each link carried, and the time in which it carried any. */

export interface LinkTraffic {
  readonly bytes: number;
  /** Seconds in which at least one transfer was under way on the link. */
  readonly busySeconds: number;
}

export class LinkMeter {
  readonly #clock: () => number;
  readonly #links: Map<string, { bytes: number; busyMs: number; active: number; sinceMs: number }> =
    new Map();

  constructor(clockMs: () => number) {
    this.#clock = clockMs;
  }

  begin(link: string): void {
    let state = this.#links.get(link);
    if (state === undefined) {
      state = { bytes: 0, busyMs: 0, active: 0, sinceMs: 0 };
      this.#links.set(link, state);
    }
    if (state.active++ === 0) state.sinceMs = this.#clock();
  }

  end(link: string, bytes: number): void {
    const state = this.#links.get(link)!;
    state.bytes += bytes;
    if (--state.active === 0) state.busyMs += this.#clock() - state.sinceMs;
  }

  traffic(): Map<string, LinkTraffic> {
    return new Map(
      [...this.#links].map(([link, { bytes, busyMs }]) => [link, { bytes, busySeconds: busyMs / 1000 }]),
    );
  }
}
