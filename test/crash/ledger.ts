/**
 * What a store must answer after a crash, from the log of the life that ended in it. For each slot: the
 * record that must be there, if there is one that must. A write that was under way leaves its slot to either
 * record or none; what a slot holds besides is judged by its bytes, which only one (slot, generation) can
 * have.
 */

import type { PoolShape } from '../../src/runtime/tables/slotPool.ts';

export class Ledger {
  readonly #shape: PoolShape;
  /** Slot -> generation that must be found, after a kill. */
  readonly ended: Map<number, number> = new Map();
  /** The same for what a durability point covers: after a loss of power. */
  readonly durable: Map<number, number> = new Map();
  /** Size class that a page was last cut into. */
  readonly #pageClass: Map<number, number> = new Map();
  readonly #latest: Map<number, number> = new Map();
  readonly #asked: Map<string, Map<number, number>> = new Map();
  generation = 0;
  wrong = 0;
  lastChange = '';
  opened = 0;
  /** The store has been without power once. */
  powerLost = false;

  constructor(shape: PoolShape) {
    this.#shape = shape;
  }

  read(log: string): void {
    this.#asked.clear();
    this.lastChange = '';
    this.opened = 0;
    for (const line of log.split('\n')) {
      const [op, ...words] = line.split(' ');
      const [slot = 0, sizeClass = 0, generation = 0] = words.map(Number);
      if (op === 'w') this.#begin(slot, sizeClass, generation);
      else if (op === 'e') this.#end(slot, generation);
      else if (op === 's') this.#asked.set(words[0], new Map(this.ended));
      else if (op === 'd') this.#reached(words[0]);
      else if (op === 'c') this.#closed();
      else if (op === 'k') this.lastChange = words.join(' ');
      else if (op === 'o') this.opened++;
      else if (op === 'WRONG') this.wrong++;
    }
  }

  /** What was found is what the next life begins with. */
  restart(found: Iterable<{ slot: number; sizeClass: number; generation: number }>): void {
    for (const map of [this.ended, this.durable, this.#latest, this.#pageClass]) map.clear();
    for (const { slot, sizeClass, generation } of found) {
      this.ended.set(slot, generation);
      this.durable.set(slot, generation);
      this.#pageClass.set(Math.floor(slot / this.#shape.slotsPerPageMax), sizeClass);
    }
  }

  #begin(slot: number, sizeClass: number, generation: number): void {
    const { slotsPerPageMax } = this.#shape;
    const page = Math.floor(slot / slotsPerPageMax);
    const recut = this.#pageClass.get(page) !== sizeClass;
    this.#pageClass.set(page, sizeClass);
    const [from, to] = recut ? [page * slotsPerPageMax, (page + 1) * slotsPerPageMax] : [slot, slot + 1];
    for (let given = from; given < to; given++) {
      this.ended.delete(given);
      this.durable.delete(given);
    }
    this.#latest.set(slot, generation);
    this.generation = Math.max(this.generation, generation);
  }

  #end(slot: number, generation: number): void {
    if (this.#latest.get(slot) === generation) this.ended.set(slot, generation);
  }

  #reached(point: string): void {
    for (const [slot, generation] of this.#asked.get(point)!) {
      if (this.ended.get(slot) === generation) this.durable.set(slot, generation);
    }
  }

  #closed(): void {
    for (const [slot, generation] of this.ended) this.durable.set(slot, generation);
  }
}
