/**
 * Stop strings in text that comes in pieces: text that may be the beginning of one is held back, so that no
 * part of a stop string is ever given out.
 */

export class StopStrings {
  readonly #stops: readonly string[];
  #held = '';
  #hasStopped = false;

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '');
  }

  /** Whether a stop string was met. What comes after it is dropped. */
  get hasStopped(): boolean {
    return this.#hasStopped;
  }

  /** @returns the text that can be given out now */
  push(piece: string): string {
    if (this.#hasStopped) return '';
    const text = this.#held + piece;
    const ends = this.#stops.map((stop) => text.indexOf(stop)).filter((at) => at !== -1);
    if (ends.length > 0) {
      this.#hasStopped = true;
      this.#held = '';
      return text.slice(0, Math.min(...ends));
    }
    const held = Math.max(0, ...this.#stops.map((stop) => overlap(text, stop)));
    this.#held = text.slice(text.length - held);
    return text.slice(0, text.length - held);
  }

  /** @returns what was held back: no more text comes */
  end(): string {
    const held = this.#held;
    this.#held = '';
    return held;
  }
}

/** How much of the end of `text` is a beginning of `stop`. */
function overlap(text: string, stop: string): number {
  let length = Math.min(text.length, stop.length - 1);
  while (length > 0 && !text.endsWith(stop.slice(0, length))) length--;
  return length;
}
