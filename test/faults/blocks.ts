/** The blocks that tenants compute: chains with their keys, and the only right bytes of each key. */

import { fillPattern } from '../../src/runtime/pattern.ts';
import type { SeededRandom } from '../../src/testing/patternItems.ts';
import { blockBytes } from './worldConfig.ts';

const TENANTS = 3;

export interface Chain {
  readonly keys: Uint32Array;
  readonly blocks: number;
}

export class Blocks {
  readonly #right: Map<number, Uint8Array> = new Map();

  /**
   * Tenants ask for the same prompts; few first blocks and two ways on at each make prefixes that are shared.
   */
  chain(random: SeededRandom, blocksMax: number): Chain {
    const blocks = 1 + random.below(blocksMax);
    const tenant = 1 + random.below(TENANTS);
    const keys = new Uint32Array(blocks * 4);
    let node = 1 + random.below(3);
    for (let i = 0; i < blocks; i++) {
      node = (node * 3 + random.below(2)) % 100_003;
      keys.set([tenant, node, i, 7], i * 4);
    }
    return { keys, blocks };
  }

  /** The bytes that the block with this key has, and no other. */
  right(keys: Uint32Array, at: number): Uint8Array {
    const name = keys[at] * 2 ** 24 + keys[at + 1] * 2 ** 6 + keys[at + 2];
    let bytes = this.#right.get(name);
    if (bytes === undefined) {
      bytes = new Uint8Array(blockBytes);
      fillPattern(new Uint32Array(bytes.buffer), keys[at] * 1_000_003 + keys[at + 1], keys[at + 2]);
      this.#right.set(name, bytes);
    }
    return bytes;
  }

  isRight(key: Uint32Array, bytes: Uint8Array): boolean {
    return Buffer.compare(this.right(key, 0), bytes) === 0;
  }
}
