/**
 * Where keys come from. `KeyChain` hashes tokens; `ExternalKeys` takes ids that a trace has already chained.
 * Either way two blocks have equal keys only if they, and all blocks before them, hold the same, in the same
 * namespace.
 */

import type { BlockKeys } from './blockKeys.ts';

/** Token ids, or block ids for `ExternalKeys`: integers of at least 0. */
export type KeyElements = Int32Array | Uint32Array | Float64Array | readonly number[];

export interface KeySource {
  /** Elements that one key covers: tokens of a unit, or one id. */
  readonly elementsPerKey: number;

  /**
   * Makes `out` the keys of all full blocks among the first `elementCount` elements of a sequence, keeping
   * its keys before `from` and appending the rest. Call it with `from = out.length` to extend a sequence that
   * grew. `elements[0]` is the first of the sequence, `elementCount` is all of them when absent.
   * @returns `out.length`.
   * @throws TKV_INPUT naming the element that is no valid id; `out` then holds the keys before it.
   */
  hashBlocks(elements: KeyElements, from: number, out: BlockKeys, elementCount?: number): number;

  /**
   * Writes to `out[at]` the key of the first `count` elements of block `block`, fewer than a whole block: a
   * partial tail, keyed by its exact length. `keys` holds the keys of the blocks before it.
   * @throws TKV_INPUT naming the element that is no valid id.
   */
  hashPartial(
    elements: KeyElements,
    block: number,
    count: number,
    keys: BlockKeys,
    out: Uint32Array,
    at?: number,
  ): void;
}
