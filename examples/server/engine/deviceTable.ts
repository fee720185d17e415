/**
 * A request's own copy of its block table: slab and offset of each block. A block keeps its place while it is
 * sealed, when it cannot be asked for, so only blocks that are new are looked up.
 */

import type { KVRuntime } from '../../../src/index.ts';
import type { Sequence } from '../../../src/runtime/index.ts';

export class DeviceTable {
  #words: number[] = [];
  #sequence: Sequence | undefined;
  #disturbances = 0;

  /** Whether a block of the running request has lost its bytes, such as one that could not be sealed. */
  get isDisturbed(): boolean {
    return this.#sequence !== undefined && this.#sequence.disturbances !== this.#disturbances;
  }

  /**
   * The first `blocks` blocks, as they lie now: two words each.
   * @throws TKV_STATE when one of them is neither loaded nor open
   */
  refresh({ manager, stores }: KVRuntime, sequence: Sequence, blocks: number): readonly number[] {
    if (this.#sequence !== sequence || this.#disturbances !== sequence.disturbances) {
      this.#sequence = sequence;
      this.#disturbances = sequence.disturbances;
      this.#words = [];
    }
    const words = this.#words;
    for (let i = words.length / 2; i < blocks; i++) {
      const block = manager.loadedBlock(sequence, i) ?? manager.openBlock(sequence, i);
      if (block === undefined) throw new Error(`block ${i} of a planned request is not in HBM`);
      const { slab, offsetBytes } = stores.hbm.locate(block.slot, block.sizeClass);
      words.push(slab, offsetBytes);
    }
    return words;
  }
}
