/**
 * A fixed number of equal things, lent one by one. Whoever finds none free waits in line: that is the back-pressure
 * which bounds the bytes in flight. When the device is gone, everyone who waits or asks gets `undefined`.
 */

import type { LiveDevice } from './liveDevice.ts';

export class LendingRing<T> {
  readonly #things: number;
  readonly #lentMost: () => number;
  readonly #free: T[];
  readonly #line: ((thing: T | undefined) => void)[] = [];
  readonly #unsubscribe: () => void;
  #lent = 0;
  #allBack: (() => void) | undefined;
  #closed = false;

  /**
   * @param lentMost how many may be out at present. As long as that is fewer than there are, the one that came back last
   * goes out first; otherwise they take turns.
   */
  constructor(live: LiveDevice, things: readonly T[], lentMost: () => number = () => things.length) {
    this.#things = things.length;
    this.#lentMost = lentMost;
    this.#free = [...things];
    this.#unsubscribe = live.onLost(() => this.close());
  }

  /** How many are out. */
  get lent(): number {
    return this.#lent;
  }

  /** A free one at once, or as soon as there is one; `undefined` when the ring is closed. */
  acquire(): T | undefined | Promise<T | undefined> {
    if (this.#closed) return undefined;
    if (this.#line.length === 0 && this.#mayLend()) return this.#lend();
    return new Promise((resolve) => {
      this.#line.push(resolve);
    });
  }

  release(thing: T): void {
    this.#free.push(thing);
    this.#lent -= 1;
    while (this.#line.length > 0 && this.#mayLend()) this.#line.shift()!(this.#lend());
    if (this.#lent === 0) this.#allBack?.();
  }

  /** Waits until everything lent is back, or the device is gone, and lends nothing more. */
  async drain(): Promise<void> {
    if (this.#closed) return;
    await new Promise<void>((resolve) => {
      this.#allBack = resolve;
      if (this.#lent === 0) resolve();
    });
    this.close();
  }

  close(): void {
    this.#closed = true;
    this.#unsubscribe();
    this.#allBack?.();
    for (const resolve of this.#line.splice(0)) resolve(undefined);
  }

  #mayLend(): boolean {
    const ends = this.#allBack !== undefined;
    return !ends && this.#free.length > 0 && this.#lent < this.#lentMost();
  }

  #lend(): T {
    this.#lent += 1;
    return this.#lentMost() < this.#things ? this.#free.pop()! : this.#free.shift()!;
  }
}
