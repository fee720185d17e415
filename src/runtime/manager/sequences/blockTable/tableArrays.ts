/**
 * The arrays of block tables. A sequence that ends gives its arrays back, empty, and the next one of about
 * its size takes them: sequences come and go by the thousand, and arrays are dear to make.
 */

import { Outcome } from '../../../transfer/outcome.ts';

/** One entry a block. What each means is said where a sequence has them. */
export interface TableArrays {
  readonly replica: Int32Array;
  readonly content: Int32Array;
  readonly claim: Int32Array;
  readonly state: Uint8Array;
  readonly outcome: Uint8Array;
}

/** Entries of all arrays that wait to be used again, at most. */
const SPARE_ENTRIES = 2 ** 16;
const SIZE_LEAST = 16;

export function newArrays(size: number): TableArrays {
  return {
    replica: new Int32Array(size).fill(-1),
    content: new Int32Array(size).fill(-1),
    claim: new Int32Array(size).fill(-1),
    state: new Uint8Array(size),
    outcome: new Uint8Array(size).fill(Outcome.LOADED),
  };
}

/** What a sequence has that has ended. */
export const noArrays: TableArrays = newArrays(0);

export class SpareArrays {
  readonly #bySize: Map<number, TableArrays[]> = new Map();
  #entries = 0;

  /** Empty arrays of at least so many entries. */
  take(blocks: number): TableArrays {
    const size = sizeFor(blocks);
    const arrays = this.#bySize.get(size)?.pop();
    if (arrays === undefined) return newArrays(size);
    this.#entries -= size;
    return arrays;
  }

  /** @param arrays all of whose entries are empty */
  giveBack(arrays: TableArrays): void {
    const size = arrays.state.length;
    if (size !== sizeFor(size) || this.#entries + size > SPARE_ENTRIES) return;
    this.#entries += size;
    const spare = this.#bySize.get(size);
    if (spare === undefined) this.#bySize.set(size, [arrays]);
    else spare.push(arrays);
  }
}

/** Few different sizes: steps of an eighth at least. */
function sizeFor(blocks: number): number {
  let step = SIZE_LEAST;
  while (step * 8 < blocks) step *= 2;
  return Math.max(step, Math.ceil(blocks / step) * step);
}
