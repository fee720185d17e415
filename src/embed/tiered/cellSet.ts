/** Which cells of a box have been found. */

import type { KVBox } from '../../runtime/index.ts';

export class CellSet {
  readonly #box: KVBox;
  readonly #found: Uint8Array;
  #left: number;

  constructor(box: KVBox) {
    this.#box = box;
    const layers = box.layerEnd - box.layerStart;
    const heads = box.headEnd - box.headStart;
    this.#left = layers * heads * (box.tokenEnd - box.tokenStart);
    this.#found = new Uint8Array(this.#left);
  }

  get isFull(): boolean {
    return this.#left === 0;
  }

  /** @returns whether `part` has cells of the box that were not found before */
  take(part: KVBox): boolean {
    const { layerStart, headStart, tokenStart, layerEnd, headEnd, tokenEnd } = this.#box;
    const [heads, tokens] = [headEnd - headStart, tokenEnd - tokenStart];
    const before = this.#left;
    for (let l = Math.max(layerStart, part.layerStart); l < Math.min(layerEnd, part.layerEnd); l++) {
      for (let h = Math.max(headStart, part.headStart); h < Math.min(headEnd, part.headEnd); h++) {
        const row = ((l - layerStart) * heads + (h - headStart)) * tokens - tokenStart;
        for (let t = Math.max(tokenStart, part.tokenStart); t < Math.min(tokenEnd, part.tokenEnd); t++) {
          if (this.#found[row + t] === 1) continue;
          this.#found[row + t] = 1;
          this.#left--;
        }
      }
    }
    return this.#left < before;
  }
}
