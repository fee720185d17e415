/**
 * Which slots calls of a store are working on. Stores do not queue calls that meet on a slot: the second one
 * is refused, and changes nothing. The manager never sends such a call, since a slot belongs to its job until
 * the job has retired.
 *
 *     held as | a further `read` | `device` | `source` | `write`
 *     read    | allowed          | refused  | allowed  | refused
 *     device  | refused          | allowed  | allowed  | refused
 *     source  | allowed          | allowed  | allowed  | refused
 *     write   | refused          | refused  | refused  | refused
 *
 * `device` is work on a device that its queue keeps in order, such as filling a slot and then sealing it.
 * `source` is a slot that such work copies from. `read` goes another way and could come later than it was
 * asked for, so nothing may change the slot.
 */

import { invariant } from '../errors.ts';
import { refused } from './slotLedger.ts';
import type { StoreResult } from './tierStore.ts';

export const slotUses = ['read', 'device', 'source', 'write'] as const;
export type SlotUse = (typeof slotUses)[number];

const clashes: Readonly<Record<SlotUse, readonly SlotUse[]>> = {
  read: ['device', 'write'],
  device: ['read', 'write'],
  source: ['write'],
  write: slotUses,
};

/** Calls that hold a slot, by use. */
type Lock = Record<SlotUse, number>;

export class SlotLocks {
  readonly #locks: Map<number, Lock> = new Map();

  /** Slots that some call works on. */
  get size(): number {
    return this.#locks.size;
  }

  /** Takes the slot for `use`. @returns why it cannot be had; undefined when it was taken */
  take(slot: number, use: SlotUse): StoreResult | undefined {
    const lock = this.#locks.get(slot) ?? { read: 0, device: 0, source: 0, write: 0 };
    const held = clashes[use].find((other) => lock[other] > 0);
    if (held !== undefined) return refused(`slot ${slot} is busy: a ${held} of it has not ended`);
    lock[use]++;
    this.#locks.set(slot, lock);
    return undefined;
  }

  /** Gives back what `take` gave. Call it before anybody learns that the call has ended. */
  release(slot: number, use: SlotUse): void {
    const lock = this.#locks.get(slot);
    invariant(lock !== undefined && lock[use] > 0, 'a slot is given back as often as it was taken');
    lock[use]--;
    if (lock.read + lock.device + lock.source + lock.write === 0) this.#locks.delete(slot);
  }
}
