/**
 * A fixed number of equal things, lent one by one. Whoever finds none free waits in line: that is the back-pressure
 * which bounds the bytes in flight. When the device is gone, everyone who waits or asks gets `undefined`.
 */

import type { LiveDevice } from './liveDevice.ts';

export class LendingRing<T> {
  readonly #size: number;
  readonly #free: T[];
  readonly #line: ((thing: T | undefined) => void)[] = [];
  readonly #unsubscribe: () => void;
  #closed = false;

  constructor(live: LiveDevice, things: readonly T[]) {
    this.#size = things.length;
    this.#free = [...things].reverse();
    this.#unsubscribe = live.onLost(() => this.close());
  }

  /** A free one at once, or as soon as there is one; `undefined` when the ring is closed. */
  acquire(): T | undefined | Promise<T | undefined> {
    if (this.#closed) return undefined;
    const thing = this.#free.pop();
    if (thing !== undefined) return thing;
    return new Promise((resolve) => {
      this.#line.push(resolve);
    });
  }

  release(thing: T): void {
    const next = this.#line.shift();
    if (next === undefined) this.#free.push(thing);
    else next(thing);
  }

  /** Waits until everything lent is back, or the device is gone, and lends nothing more. */
  async drain(): Promise<void> {
    for (let i = 0; i < this.#size && !this.#closed; i++) await this.acquire();
    this.close();
  }

  close(): void {
    this.#closed = true;
    this.#unsubscribe();
    for (const resolve of this.#line.splice(0)) resolve(undefined);
  }
}
