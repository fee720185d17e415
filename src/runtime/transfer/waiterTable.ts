/**
 * Who waits for a job: chains of (sequence, block) hung on job rows, in the order in which they began to
 * wait.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot/index.ts';

export class WaiterTable {
  #sequence: Float64Array = new Float64Array(64);
  #block: Int32Array = new Int32Array(64);
  #next: Int32Array = new Int32Array(64);
  #free = -1;
  #made = 0;
  #count = 0;

  /** Waiters that hang on a job. */
  get count(): number {
    return this.#count;
  }

  sequence(waiter: number): number {
    return this.#sequence[waiter];
  }

  block(waiter: number): number {
    return this.#block[waiter];
  }

  next(waiter: number): number {
    return this.#next[waiter];
  }

  /** Appends to the chain that starts at `heads[at]`. */
  append(heads: Int32Array, at: number, sequence: number, block: number): void {
    const waiter = this.#take();
    this.#sequence[waiter] = sequence;
    this.#block[waiter] = block;
    this.#next[waiter] = -1;
    let last = heads[at];
    if (last === -1) {
      heads[at] = waiter;
      return;
    }
    while (this.#next[last] !== -1) last = this.#next[last];
    this.#next[last] = waiter;
  }

  /** Takes (sequence, block) out of the chain at `heads[at]`; false when it is not there. */
  remove(heads: Int32Array, at: number, sequence: number, block: number): boolean {
    let before = -1;
    for (let waiter = heads[at]; waiter !== -1; before = waiter, waiter = this.#next[waiter]) {
      if (this.#sequence[waiter] !== sequence || this.#block[waiter] !== block) continue;
      if (before === -1) heads[at] = this.#next[waiter];
      else this.#next[before] = this.#next[waiter];
      this.#giveBack(waiter);
      return true;
    }
    return false;
  }

  /**
   * Unhangs the first waiter of the chain and returns it; valid until the next append. -1 for an empty chain.
   */
  shift(heads: Int32Array, at: number): number {
    const waiter = heads[at];
    if (waiter === -1) return -1;
    heads[at] = this.#next[waiter];
    this.#giveBack(waiter);
    return waiter;
  }

  #take(): number {
    this.#count++;
    if (this.#free !== -1) {
      const waiter = this.#free;
      this.#free = this.#next[waiter];
      return waiter;
    }
    if (this.#made === this.#block.length) this.#grow();
    return this.#made++;
  }

  #giveBack(waiter: number): void {
    this.#count--;
    this.#next[waiter] = this.#free;
    this.#free = waiter;
  }

  #grow(): void {
    const size = this.#block.length * 2;
    invariant(size <= 2 ** 30, 'waiters within limits');
    const sequence = new Float64Array(size);
    sequence.set(this.#sequence);
    const block = new Int32Array(size);
    block.set(this.#block);
    const next = new Int32Array(size);
    next.set(this.#next);
    this.#sequence = sequence;
    this.#block = block;
    this.#next = next;
  }

  visitState(visitor: StateVisitor): void {
    this.#sequence = visitor.growing(this.#sequence);
    this.#block = visitor.growing(this.#block);
    this.#next = visitor.growing(this.#next);
    this.#free = visitor.number(this.#free);
    this.#made = visitor.number(this.#made);
    this.#count = visitor.number(this.#count);
  }
}
