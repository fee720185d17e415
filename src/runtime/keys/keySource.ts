/**
 * Where keys come from. `KeyChain` hashes tokens; `ExternalKeys` takes ids that a trace has already chained.
 * Either way two blocks have equal keys only if they, and all blocks before them, hold the same, in the same
 * namespace.
 */

import { TierKVError } from '../errors.ts';
import { described } from '../options.ts';
import type { BlockKeys } from './blockKeys.ts';

/** Token ids, or block ids for `ExternalKeys`: integers of at least 0, as tokenizers give them. */
export type KeyElements =
  | Int32Array
  | Uint32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array
  | readonly (number | bigint)[];

/** Element `i` as a number; NaN for what is neither a number nor a bigint. */
export function elementAt(elements: KeyElements, i: number): number {
  const element = elements[i];
  if (typeof element === 'number') return element;
  return typeof element === 'bigint' ? Number(element) : Number.NaN;
}

/** @throws TKV_INPUT for what is no list of numbers, as far as its length says */
export function requireElements(elements: KeyElements, field = 'tokens'): void {
  const isList = typeof elements === 'object' && elements !== null;
  if (isList && Number.isSafeInteger(elements.length) && elements.length >= 0) return;
  const problem = `${field} must be a list, and it is ${described(elements)}`;
  throw new TierKVError('TKV_INPUT', `${problem}. Pass an array of token ids.`, { field });
}

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
