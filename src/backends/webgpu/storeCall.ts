/** One call of the store under way: its items, how each ended, and the promise for all of them. */

import type { SlotTurn } from './slotTurns.ts';

export class StoreCall<Item, Result> {
  readonly items: readonly Item[];
  readonly turn: SlotTurn;
  readonly ended: Promise<readonly Result[]>;
  readonly #results: (Result | undefined)[];
  #left: number;
  #end: (results: readonly Result[]) => void = () => {};

  constructor(items: readonly Item[], turn: SlotTurn) {
    this.items = items;
    this.turn = turn;
    this.#results = new Array<Result | undefined>(items.length).fill(undefined);
    this.#left = items.length;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    if (items.length === 0) this.#end([]);
  }

  /** The item's end; the first one counts. */
  settle(index: number, result: Result): void {
    if (this.#results[index] !== undefined) return;
    this.#results[index] = result;
    this.#left -= 1;
    if (this.#left === 0) this.#end(this.#results as Result[]);
  }

  settleRest(result: Result): void {
    for (let index = 0; index < this.items.length; index++) this.settle(index, result);
  }
}
