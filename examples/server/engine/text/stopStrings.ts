/**
 * Stop strings in text that comes in pieces: text that may be the beginning of one is held back, so that no
 * part of a stop string is ever given out. Of several stop strings that one counts which is whole first; of
 * several that end at the same character, the longest. So the text does not depend on the pieces.
 */

import { overlap } from './tokenDecoder.ts';

export class StopStrings {
  readonly #stops: readonly string[];
  #held = '';
  #stoppedAt: string | undefined;

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '');
  }

  /** The stop string that was met; undefined before. What comes after it is dropped. */
  get stoppedAt(): string | undefined {
    return this.#stoppedAt;
  }

  /** @returns the text that can be given out now */
  push(piece: string): string {
    if (this.#stoppedAt !== undefined) return '';
    const text = this.#held + piece;
    const found = this.#stops
      .map((stop) => ({ stop, from: text.indexOf(stop), length: stop.length }))
      .filter(({ from }) => from !== -1)
      .sort((a, b) => a.from + a.length - b.from - b.length || a.from - b.from);
    if (found.length > 0) {
      this.#stoppedAt = found[0].stop;
      this.#held = '';
      return text.slice(0, found[0].from);
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
