/**
 * Work that one run does for everybody who asked before it began: while a run is under way there is one more
 * behind it at the most, and whoever asks meanwhile shares that one.
 */

export class SharedRun {
  readonly #work: () => Promise<void>;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(work: () => Promise<void>) {
    this.#work = work;
  }

  /** Whether a run has not begun yet. */
  get isAwaited(): boolean {
    return this.#next !== undefined;
  }

  /** The end of a run that begins after this call. */
  ask(): Promise<void> {
    if (this.#next !== undefined) return this.#next;
    const turn = (): Promise<void> => {
      this.#running = this.#next;
      this.#next = undefined;
      return this.#work().finally(() => {
        this.#running = undefined;
      });
    };
    this.#next = (this.#running ?? Promise.resolve()).then(turn, turn);
    return this.#next;
  }
}
