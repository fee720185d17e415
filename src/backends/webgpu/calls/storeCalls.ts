/**
 * The calls of a store that are under way. A call admits its items at once: it takes the locks of their slots
 * and notes their generations in the ledger, so the next call already sees them. Items that are not admitted
 * end in a microtask, after the call has returned; the others end when their work does. Slots are given back
 * before anybody learns that an item has ended.
 */

import { refused } from '../../../runtime/tier/slotLedger.ts';
import type { SlotLocks, SlotUse } from '../../../runtime/tier/slotLocks.ts';
import type { StoreResult } from '../../../runtime/tier/tierStore.ts';
import type { LiveDevice } from '../device/liveDevice.ts';

/** What a kind of call does with its items. */
export interface CallKind<Item, Result extends StoreResult> {
  /** Why the item can never be done, whatever lies in its slots; undefined where it can. */
  misfit(item: Item): StoreResult | undefined;
  /** The slots that the item works on, and what for. Asked only of items that fit. */
  slots(item: Item): readonly SlotNeed[];
  /** Why the item may not be done now; otherwise its slots take their generations. The slots are locked. */
  admit(item: Item): StoreResult | undefined;
  /** The result of an item that was not done. */
  refusal(end: StoreResult): Result;
  /** Begins the work on one of `items` items. The first call of `end` counts; others do nothing. */
  begin(item: Item, end: (result: Result) => void, items: number): void;
  /** Whether items of one call may name a slot together. The call then locks it once. Default false. */
  readonly sharesSlots?: boolean;
}

export interface SlotNeed {
  readonly slot: number;
  readonly use: SlotUse;
}

export class StoreCalls {
  readonly #live: LiveDevice;
  readonly #locks: SlotLocks;
  readonly #underWay: Set<Promise<unknown>> = new Set();
  #closed = false;

  constructor(live: LiveDevice, locks: SlotLocks) {
    this.#live = live;
    this.#locks = locks;
  }

  make<Item, Result extends StoreResult>(
    kind: CallKind<Item, Result>,
    items: readonly Item[],
    ended: (index: number, result: Result) => void = () => {},
  ): Promise<readonly Result[]> {
    const call = new StoreCall<Result>(items.length, ended);
    const held = kind.sharesSlots === true ? new SharedSlots(this.#locks) : this.#locks;
    const unfit = this.#closed ? refused('the pool is disposed of') : this.#live.loss;
    const refusals: [number, StoreResult][] = [];
    items.forEach((item, index) => {
      const refusal = unfit ?? this.#admit(kind, item, held);
      if (refusal !== undefined) {
        refusals.push([index, refusal]);
        return;
      }
      const slots = kind.slots(item);
      let over = false;
      const end = (result: Result): void => {
        if (over) return;
        over = true;
        for (const { slot, use } of slots) held.release(slot, use);
        call.end(index, result);
      };
      kind.begin(item, end, items.length);
    });
    if (refusals.length > 0) {
      queueMicrotask(() => {
        for (const [index, refusal] of refusals) call.end(index, kind.refusal(refusal));
      });
    }
    this.#underWay.add(call.results);
    void call.results.then(() => this.#underWay.delete(call.results));
    return call.results;
  }

  /** Refuses all later calls, and waits until those under way have ended. */
  async close(): Promise<void> {
    this.#closed = true;
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  #admit<Item, Result extends StoreResult>(
    kind: CallKind<Item, Result>,
    item: Item,
    held: Pick<SlotLocks, 'take' | 'release'>,
  ): StoreResult | undefined {
    const misfit = kind.misfit(item);
    if (misfit !== undefined) return misfit;
    const taken: SlotNeed[] = [];
    let refusal: StoreResult | undefined;
    for (const need of kind.slots(item)) {
      refusal = held.take(need.slot, need.use);
      if (refusal !== undefined) break;
      taken.push(need);
    }
    refusal ??= kind.admit(item);
    if (refusal !== undefined) for (const { slot, use } of taken) held.release(slot, use);
    return refusal;
  }
}

/** Locks that one call takes once for all of its items on a slot. */
class SharedSlots {
  readonly #locks: SlotLocks;
  readonly #items: Map<number, number> = new Map();

  constructor(locks: SlotLocks) {
    this.#locks = locks;
  }

  take(slot: number, use: SlotUse): StoreResult | undefined {
    const items = this.#items.get(slot) ?? 0;
    const busy = items === 0 ? this.#locks.take(slot, use) : undefined;
    if (busy === undefined) this.#items.set(slot, items + 1);
    return busy;
  }

  release(slot: number, use: SlotUse): void {
    const items = (this.#items.get(slot) ?? 0) - 1;
    this.#items.set(slot, items);
    if (items === 0) this.#locks.release(slot, use);
  }
}

/** The results of one call. */
class StoreCall<Result extends StoreResult> {
  readonly results: Promise<readonly Result[]>;
  readonly #results: Result[];
  readonly #ended: (index: number, result: Result) => void;
  #left: number;
  #resolve: (results: readonly Result[]) => void = () => {};

  constructor(count: number, ended: (index: number, result: Result) => void) {
    this.#results = new Array<Result>(count);
    this.#ended = ended;
    this.#left = count;
    this.results = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    if (count === 0) this.#resolve([]);
  }

  end(index: number, result: Result): void {
    this.#results[index] = result;
    try {
      this.#ended(index, result);
    } catch (error) {
      // The store goes on; a callback that throws is the caller's fault, which must not pass unseen.
      queueMicrotask(() => {
        throw error;
      });
    }
    this.#left -= 1;
    if (this.#left === 0) this.#resolve(this.#results);
  }
}
