/**
 * Blocks on a slow tier are read into host memory before their request takes room in HBM, so that nobody
 * waits for room that only waits for a disk. While most of HBM is free to take, they are read right into it.
 */

import { Priority, Tier } from '../../../runtime/index.ts';
import { unlessAborted } from '../../abort.ts';
import type { TokenList } from '../../prompts/tokenList.ts';
import type { RequestContext } from '../context.ts';
import type { GroupTable } from '../kvSequence.ts';
import { longestTail } from '../tails.ts';

/** Position of host memory among the tiers. */
const DDR = 1;
/** Share of HBM in use from which on it is not held for reads of slower tiers than host memory. */
const HELD_SHARE = 0.5;

/** Keys of the request's cached blocks, its tail's among them, that host memory does not have yet. */
export function keysToStage(
  context: RequestContext,
  groups: readonly Pick<GroupTable, 'chain' | 'keys'>[],
  list: TokenList,
): Uint32Array[] {
  const { manager, blockTokens } = context;
  if (manager.tiers.length <= 2 || manager.tiers[DDR] !== Tier.DDR || !isHeld(context)) return [];
  const limit = Math.floor(Math.max(list.length - 1, 0) / blockTokens);
  const matched = Math.min(...groups.map(({ keys }) => manager.matchLength(keys.words, limit)));
  const wanted = groups.flatMap(({ keys }) =>
    Array.from({ length: matched }, (_, i) => keys.words.subarray(i * 4, i * 4 + 4)),
  );
  wanted.push(...(longestTail(context, groups, list, matched)?.keys ?? []));
  return wanted.filter((key) => {
    const { byTier, pending } = manager.lookup(key, 1);
    const position = byTier.indexOf(1);
    return position > DDR || (position === DDR && pending > 0);
  });
}

/** Fulfilled when each of the blocks is in host memory, or is not to be had there. */
export async function stage(
  { moves, nowUs }: RequestContext,
  keys: readonly Uint32Array[],
  signals: readonly AbortSignal[],
): Promise<void> {
  const staged = keys.map(
    (key) => new Promise<unknown>((ended) => moves.move(key, DDR, Priority.DEMAND_LOAD, nowUs(), ended)),
  );
  await unlessAborted(signals, () => Promise.all(staged));
}

function isHeld({ manager }: RequestContext): boolean {
  const { residentBytes, cachedBytes, capacityBytes } = manager.usage(0);
  return residentBytes - cachedBytes > HELD_SHARE * capacityBytes;
}
