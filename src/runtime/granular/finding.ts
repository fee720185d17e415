/** What is cached of some tokens: found in one pass over the keys, without holding or counting anything. */

import type { Granularity } from '../geometry/index.ts';
import { type KeyElements, keyToHex } from '../keys/index.ts';
import { requireOptions } from '../options.ts';
import type { Tier } from '../tier/tier.ts';
import type { UseHistory } from '../usage/index.ts';
import { type Column, columnsOf } from './columns.ts';
import { type PrefixOptions, prefixOptionsNames, requireCount, requireTokens } from './requests.ts';
import type { PoolState } from './state.ts';

/** A cached block, held by some sequence or by none. */
export interface FoundBlock {
  /** Of BLOCK and TOKEN blocks that this pool gave out; undefined of others. */
  readonly blockId: number | undefined;
  readonly granularity: Granularity;
  readonly layerIds: readonly [start: number, end: number];
  readonly headIds: readonly [start: number, end: number];
  readonly tokenRange: readonly [start: number, end: number];
  /** The fastest tier that has it ready; undefined while it is on its way. */
  readonly tier: Tier | undefined;
  /** Sequences that hold it there. */
  readonly refCount: number;
  readonly tokenHash: string;
  /** undefined where nothing is known of it. */
  readonly use: UseHistory | undefined;
}

export function findPrefix(
  state: PoolState,
  tokenIds: KeyElements,
  minMatchLength: number,
  options: PrefixOptions,
): FoundBlock[] {
  const { granularity, layerIds, headIds, tenant = '' } = requireOptions(options, prefixOptionsNames);
  requireTokens('tokenIds', tokenIds, 0);
  requireCount('minMatchLength', minMatchLength, 0);
  const { shapes, defaultGranularity, layout } = state.config;
  const all = Array.from({ length: layout.layers }, (_, i) => i);
  const columns = columnsOf(shapes, granularity ?? defaultGranularity, layerIds ?? all, headIds);
  if (!state.config.enableSharing) return [];
  const keys = columns.map((column) => state.keysOf(tenant, column, tokenIds, tokenIds.length));
  const units = Math.min(...keys.map(({ words, length }) => state.manager.matchLength(words, length)));
  const { tokensPerUnit } = columns[0];
  if (units === 0 || units * tokensPerUnit < minMatchLength) return [];
  const found: FoundBlock[] = [];
  for (let unit = 0; unit < units; unit++) {
    columns.forEach((column, c) => {
      found.push(describe(state, column, unit, keys[c].words.slice(unit * 4, unit * 4 + 4)));
    });
  }
  return found;
}

function describe(state: PoolState, column: Column, unit: number, key: Uint32Array): FoundBlock {
  const { granularity, layerStart, layerEnd, headStart, headEnd, tokensPerUnit } = column;
  const words = key.join(' ');
  const record = state.records.get(`${words}/${words}/1`);
  const place = state.manager.locate(key);
  return {
    blockId: record?.blockId,
    granularity,
    layerIds: [layerStart, layerEnd],
    headIds: [headStart, headEnd],
    tokenRange: [unit * tokensPerUnit, (unit + 1) * tokensPerUnit],
    tier: place === undefined ? undefined : state.manager.config.tiers[place.position].tier,
    refCount: place?.holders ?? 0,
    tokenHash: keyToHex(key),
    use: record?.use,
  };
}
