/** Work on pairs of blocks, as whoever records it into a pass sees it. */

import type { BlockPair } from './blockPairs.ts';
import type { PairKernel } from './pairKernel.ts';

export abstract class PairedBlocks implements Disposable {
  readonly #kernel: PairKernel;

  protected constructor(kernel: PairKernel) {
    this.#kernel = kernel;
  }

  /**
   * Which pairs the next `record` is about.
   * @throws TKV_CONFIG naming the pair that is out of bounds, or whose target another pair reads or writes;
   * nothing is changed then
   */
  setPairs(pairs: readonly BlockPair[]): void {
    this.#kernel.setPairs(pairs);
  }

  /** Records one dispatch; none where there are no pairs. */
  record(pass: GPUComputePassEncoder): void {
    this.#kernel.record(pass);
  }

  [Symbol.dispose](): void {
    this.#kernel[Symbol.dispose]();
  }
}
