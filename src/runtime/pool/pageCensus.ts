/**
 * Which pages of a tier hold nothing but replicas that may be evicted: clearing one of them makes room for
 * slots of any size class. Per page it counts taken slots and, of these, those that may not be evicted. A
 * page is in the list while it has taken slots and all of them may be evicted; the one that came into this
 * state first is cleared first.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';
import { IntrusiveLists } from './intrusiveLists.ts';
import type { SlotPool } from './slotPool.ts';

export class PageCensus {
  readonly #pool: SlotPool;
  readonly #taken: Uint32Array;
  readonly #fixed: Uint32Array;
  readonly #clearable: IntrusiveLists;

  constructor(pool: SlotPool) {
    this.#pool = pool;
    this.#taken = new Uint32Array(pool.shape.pages);
    this.#fixed = new Uint32Array(pool.shape.pages);
    this.#clearable = new IntrusiveLists(pool.shape.pages, 1);
  }

  /** A page to clear, or -1. */
  clearablePage(): number {
    return this.#clearable.oldest(0);
  }

  took(slot: number): void {
    const page = this.#pool.pageOf(slot);
    this.#taken[page]++;
    this.#change(page, 1);
  }

  gaveBack(slot: number): void {
    const page = this.#pool.pageOf(slot);
    this.#taken[page]--;
    this.#change(page, -1);
  }

  becameEvictable(slot: number): void {
    this.#change(this.#pool.pageOf(slot), -1);
  }

  becameFixed(slot: number): void {
    this.#change(this.#pool.pageOf(slot), 1);
  }

  #change(page: number, fixed: 1 | -1): void {
    this.#fixed[page] += fixed;
    const clearable = this.#fixed[page] === 0 && this.#taken[page] > 0;
    if (clearable === this.#clearable.has(page)) return;
    if (clearable) this.#clearable.append(0, page);
    else this.#clearable.remove(0, page);
  }

  visitState(visitor: StateVisitor): void {
    visitor.array(this.#taken);
    visitor.array(this.#fixed);
    this.#clearable.visitState(visitor);
  }

  /**
   * @param fixed taken slots of each page that may not be evicted, @param taken all taken ones, counted anew
   */
  checkIntegrity(fixed: ArrayLike<number>, taken: ArrayLike<number>): void {
    this.#clearable.checkIntegrity();
    for (let page = 0; page < this.#taken.length; page++) {
      invariant(
        this.#fixed[page] === fixed[page] && this.#taken[page] === taken[page],
        'a page knows how many of its slots are taken, and how many may not be evicted',
      );
      invariant(
        this.#clearable.has(page) === (fixed[page] === 0 && taken[page] > 0),
        'exactly the pages that can be cleared are listed',
      );
    }
  }
}
