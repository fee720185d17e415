/**
 * Which slots calls of a store are working on. Stores do not queue calls that meet on a slot: the second one is refused, and
 * changes nothing. The manager never sends such a call, since a slot belongs to its job until the job has retired.
 *
 * Any number of calls may `read` a slot, and `device` work may go on beside them: filling, copying and sealing are kept in order
 * by the device's queue. A call that brings bytes from outside (`write`) has the slot to itself.
 */

import { invariant } from '../errors.ts';
import { refused } from './slotLedger.ts';
import type { StoreResult } from './tierStore.ts';

export type SlotUse = 'read' | 'device' | 'write';

interface Lock {
  readonly use: SlotUse;
  calls: number;
}

export class SlotLocks {
  readonly #locks: Map<number, Lock> = new Map();

  /** Slots that some call works on. */
  get size(): number {
    return this.#locks.size;
  }

  /** Takes the slot for `use`. @returns why it cannot be had; undefined when it was taken */
  take(slot: number, use: SlotUse): StoreResult | undefined {
    const lock = this.#locks.get(slot);
    if (lock === undefined) {
      this.#locks.set(slot, { use, calls: 1 });
      return undefined;
    }
    if (use === 'write' || lock.use === 'write') {
      return refused(`slot ${slot} is busy: a ${lock.use} of it has not ended`);
    }
    lock.calls++;
    return undefined;
  }

  /** Gives back what `take` gave. Call it before anybody learns that the call has ended. */
  release(slot: number): void {
    const lock = this.#locks.get(slot);
    invariant(lock !== undefined, 'a slot is given back as often as it was taken');
    if (--lock.calls === 0) this.#locks.delete(slot);
  }
}
