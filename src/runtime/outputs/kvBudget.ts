/** What an owner may still use of each tier: the room that a scheduler plans with. */

import { requireInteger } from '../errors.ts';
import type { KVManager } from '../manager/kvManager.ts';
import { type TierName, tierName } from '../tier/tier.ts';

export interface TierBudget {
  readonly tier: TierName;
  readonly capacityBytes: number;
  /** Bytes that cannot be evicted now: held by sequences, written, or on their way in. */
  readonly fixedBytes: number;
  /** Cached bytes within the quotas of other owners: not to be evicted for this one. */
  readonly protectedBytes: number;
  /**
   * What the owner could take now, by evicting all that may be and calling off loads of HBM that no sequence
   * asked for: never negative.
   */
  readonly availableBytes: number;
  /** The same in whole units of size class 0. */
  readonly availableBlocks: number;
  /** Bytes that are the owner's now. */
  readonly ownedBytes: number;
  /** Null where it has none. */
  readonly quotaBytes: number | null;
}

export interface KVBudget {
  readonly owner: number;
  /** Fastest first. */
  readonly tiers: readonly TierBudget[];
}

/**
 * HBM counts with its landing room, which running sequences may use; lower tiers count without.
 * @throws TKV_CONFIG for an owner that is not there
 */
export function kvBudget(manager: KVManager, owner = 0): KVBudget {
  requireInteger('owner', owner, 0, manager.config.owners - 1);
  const tiers = manager.config.tiers.map(({ tier, shape }, position): TierBudget => {
    const { residentBytes, cachedBytes, capacityBytes: atRest } = manager.usage(position);
    const capacityBytes = position === 0 ? shape.capacityBytes : atRest;
    const fixedBytes = residentBytes - cachedBytes;
    const protectedBytes = manager.protectedBytes(owner, position);
    const unaskedBytes = position === 0 ? manager.unaskedBytes(owner) : 0;
    const availableBytes = Math.max(0, capacityBytes - fixedBytes - protectedBytes + unaskedBytes);
    return {
      tier: tierName(tier),
      capacityBytes,
      fixedBytes,
      protectedBytes,
      availableBytes,
      availableBlocks: Math.floor(availableBytes / manager.config.unitBytes[0]),
      ownedBytes: manager.ownedBytes(owner, position),
      quotaBytes: manager.quotaBytes(owner, position),
    };
  });
  return { owner, tiers };
}
