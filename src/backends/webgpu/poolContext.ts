/** What the four kinds of work on a pool share, and the words for an end that the device itself caused. */

import type { SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import { refused } from '../../runtime/transfer/slotLedger.ts';
import type { StoreResult } from '../../runtime/transfer/tierStore.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { PlaceBatches } from './placeBatches.ts';
import type { PlaceKernels } from './placeKernels.ts';
import type { Slabs } from './slabs.ts';
import type { SlotTurns } from './slotTurns.ts';

export interface PoolContext {
  readonly live: LiveDevice;
  readonly slabs: Slabs;
  readonly kernels: PlaceKernels;
  readonly batches: PlaceBatches;
  readonly ledger: SlotLedger;
  readonly turns: SlotTurns;
  readonly label: string;
}

/** The refusal that every call ends with once the device is gone; undefined while it lives. */
export function lossOf(live: LiveDevice): StoreResult | undefined {
  return live.lostReason === '' ? undefined : refused(live.lostReason);
}

/** The end of what a ring or a landing gave up on: the device is gone, or the pool closed. */
export function goneFor(live: LiveDevice): StoreResult {
  return lossOf(live) ?? refused('the pool is closed');
}

/** A call on the device threw, which it does only when it is broken: give it up, so that whoever waits is answered. */
export function giveUpAfter(live: LiveDevice, what: string, error: unknown): StoreResult {
  if (live.lostReason === '')
    live.giveUp(`${what} failed: ${error instanceof Error ? error.message : error}`);
  return refused(live.lostReason);
}
