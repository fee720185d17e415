/** A tier's books: where its slots are in their lives, and how full it is. */

import { State } from '../../replica/state.ts';
import type { Tier } from '../../tier/tier.ts';
import type { Core } from '../core.ts';

export interface TierUsage {
  readonly tier: Tier;
  readonly capacityBytes: number;
  /** Bytes that count against the capacity: held, cached, or on their way in. */
  readonly residentBytes: number;
  /** Of these, bytes that sequences hold. */
  readonly heldBytes: number;
  /** Of these, bytes that can be evicted now. */
  readonly cachedBytes: number;
  /** Bytes of blocks that were evicted and keep their slots until they have arrived below. */
  readonly leavingBytes: number;
  /** Slots by state; free ones are those that could still be cut for size class 0. */
  readonly slots: {
    readonly free: number;
    readonly reserved: number;
    readonly filling: number;
    readonly ready: number;
    readonly open: number;
    readonly draining: number;
  };
}

export function tierUsage(core: Core, position: number): TierUsage {
  const { replicas } = core;
  const count = (state: State): number => replicas.count(position, state);
  return {
    tier: core.config.tiers[position].tier,
    capacityBytes: core.capacityBytes[position],
    residentBytes: core.residentBytes[position],
    heldBytes: core.heldBytes[position],
    cachedBytes: core.cachedBytes[position],
    leavingBytes: core.leavingBytes[position],
    slots: {
      free: core.pools[position].freeSlots(0),
      reserved: count(State.RESERVED),
      filling: count(State.FILLING) + count(State.VERIFYING),
      ready: count(State.READY) + count(State.PRIVATE),
      open: count(State.OPEN) + count(State.SEALED),
      draining: count(State.DRAINING) + count(State.QUARANTINED),
    },
  };
}
