/** What a pool is asked for, checked before anything changes. */

import { TierKVError } from '../errors.ts';
import type { Granularity } from '../geometry/index.ts';
import { elementAt, type KeyElements } from '../keys/index.ts';
import { nearestName } from '../nearestName.ts';
import { described, optionNames } from '../options.ts';
import type { Tier } from '../tier/tier.ts';
import { inputError } from './columns.ts';

export interface AllocateRequest {
  readonly sequenceId: string;
  readonly requestId: string;
  /** Tokens behind those that the sequence has in these layers and heads. */
  readonly numTokens: number;
  readonly layerIds: readonly number[];
  /** Default: all heads. */
  readonly headIds?: readonly number[];
  /** Default: the pool's. */
  readonly granularity?: Granularity;
  /** Where the blocks should lie once they are sealed; they are written in HBM. Default HBM. */
  readonly preferredTier?: Tier;
  /**
   * The sequence's first `numTokens` tokens or more, where they are known: leading full units that are cached
   * are shared instead of being computed once more. Only for layers and heads that have no tokens yet.
   */
  readonly tokenIds?: KeyElements;
  /** Who may share: from your own authentication. Default ''. */
  readonly tenant?: string;
}

export const allocateRequestNames: readonly string[] = optionNames<AllocateRequest>({
  sequenceId: true,
  requestId: true,
  numTokens: true,
  layerIds: true,
  headIds: true,
  granularity: true,
  preferredTier: true,
  tokenIds: true,
  tenant: true,
});

export interface PrefixOptions {
  /** Default: the pool's. */
  readonly granularity?: Granularity;
  /** Default: all layers. */
  readonly layerIds?: readonly number[];
  /** Default: all heads. */
  readonly headIds?: readonly number[];
  /** Default ''. */
  readonly tenant?: string;
}

export const prefixOptionsNames: readonly string[] = optionNames<PrefixOptions>({
  granularity: true,
  layerIds: true,
  headIds: true,
  tenant: true,
});

export function requireName(field: string, value: unknown): void {
  if (typeof value === 'string' && value !== '') return;
  throw inputError(field, `is ${described(value)}. Give a text that is not empty.`);
}

export function requireCount(field: string, value: unknown, min: number): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min) return;
  throw inputError(field, `is ${described(value)}. Give an integer of at least ${min}.`);
}

/** Checks that there are enough tokens. Whether each is an id is checked where it is hashed. */
export function requireTokens(field: string, tokens: KeyElements, atLeast: number): void {
  const count = tokens?.length;
  if (typeof tokens !== 'object' || !Number.isSafeInteger(count) || count < 0) {
    throw inputError(field, 'are no list. Pass an array of token ids.');
  }
  if (count < atLeast) throw inputError(field, `are ${count}, fewer than ${atLeast}. Pass all of them.`);
  for (let i = 0; i < count; i++) {
    const token = elementAt(tokens, i);
    if (token >>> 0 !== token) {
      throw inputError(`${field}[${i}]`, `is ${described(tokens[i])}, not an integer from 0 to 4294967295.`);
    }
  }
}

export function unknownId(field: string, id: string | number, known: Iterable<string> = []): TierKVError {
  const near = typeof id === 'string' ? nearestName(id, [...known].slice(0, 1000)) : undefined;
  const remedy = near === undefined ? 'Name one that was allocated and not let go.' : `Did you mean ${near}?`;
  return new TierKVError('TKV_UNKNOWN_ID', `${field} ${id} is not known. ${remedy}`, { field });
}

export function stateError(field: string, problem: string): TierKVError {
  return new TierKVError('TKV_STATE', `${field} ${problem}`, { field });
}
