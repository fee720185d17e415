/**
 * The bytes of one block between the read that fills them and the write that takes them on. Pieces arrive in any order; what
 * counts are the leading bytes without a gap. The last of them are held back until the read has ended as loaded, so that a
 * write which has all bytes has those of a read that succeeded:
 *
 *     arrived     | 1 | 2 |   | 4 | 5 |        leading = 2
 *     arrived     | 1 | 2 | 3 | 4 | 5 |        leading stays below 5 ...
 *     ended                                    ... until the read is loaded, else `failure`
 */

import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { ArrivingBytes, StoreResult } from '../../runtime/transfer/tierStore.ts';

interface Stretch {
  readonly from: number;
  readonly to: number;
}

export class ByteStream implements ArrivingBytes {
  readonly #bytes: number;
  #leading = 0;
  /** What arrived before something in front of it did. */
  #ahead: Stretch[] = [];
  #failure: StoreResult | undefined;
  #waiting: { readonly bytes: number; readonly wake: () => void }[] = [];

  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  get leading(): number {
    return this.#leading;
  }

  get failure(): StoreResult | undefined {
    return this.#failure;
  }

  /** Bytes [from, to) are there. */
  arrived(from: number, to: number): void {
    this.#ahead.push({ from, to });
    this.#ahead.sort((a, b) => a.from - b.from);
    let leading = this.#leading;
    for (const one of this.#ahead) if (one.from <= leading) leading = Math.max(leading, one.to);
    if (leading === this.#bytes) return;
    this.#leading = leading;
    this.#ahead = this.#ahead.filter((one) => one.to > leading);
    this.#wake();
  }

  /** The read is over. */
  end(result: StoreResult): void {
    if (result.outcome === Outcome.LOADED) this.#leading = this.#bytes;
    else this.#failure = result;
    this.#wake();
  }

  beyond(bytes: number): Promise<void> {
    return new Promise((wake) => {
      this.#waiting.push({ bytes, wake });
      this.#wake();
    });
  }

  #wake(): void {
    const due = (bytes: number): boolean => this.#failure !== undefined || this.#leading > bytes;
    const waiting = this.#waiting;
    this.#waiting = waiting.filter(({ bytes }) => !due(bytes));
    for (const { bytes, wake } of waiting) if (due(bytes)) wake();
  }
}
