/**
 * A driver whose ends are handed out in the order of submission, one by one and when asked for. Drivers
 * report ends as they happen; a replay promises decisions that depend on the trace alone, so what the manager
 * has been told at each of its calls has to be the same for a fast driver and a slow one. Time is the trace's
 * for the same reason: policies learn from it, so a driver's clock would make decisions differ from run to
 * run.
 */

import type { Completion, EndListener, JobId, Transfer, TransferDriver } from '../../runtime/index.ts';

export class OrderedEnds implements TransferDriver {
  readonly #driver: TransferDriver;
  /** Jobs in order of submission whose end was not handed out; those before `#next` were. */
  #order: JobId[] = [];
  #next = 0;
  readonly #ended: Map<JobId, Completion> = new Map();
  #listener: EndListener = () => {};
  #wake: () => void = () => {};
  #nowUs = 0;

  constructor(driver: TransferDriver) {
    this.#driver = driver;
    driver.onEnd((end) => {
      this.#ended.set(end.job, end);
      this.#wake();
    });
  }

  /** Arrival of the request that is served, in microseconds of the trace; it never goes back. */
  nowUs(): number {
    return this.#nowUs;
  }

  arrivedAt(us: number): void {
    this.#nowUs = Math.max(this.#nowUs, us);
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(transfers: readonly Transfer[]): void {
    for (const { job } of transfers) this.#order.push(job);
    this.#driver.submit(transfers);
  }

  /** Hands out the end of the oldest job, if it has ended. @returns whether it had */
  handOut(): boolean {
    const end = this.#ended.get(this.#order[this.#next]);
    if (end === undefined) return false;
    this.#ended.delete(end.job);
    if (++this.#next === this.#order.length) {
      this.#order = [];
      this.#next = 0;
    }
    this.#listener(end);
    return true;
  }

  /** Fulfilled when another job has ended. */
  arrival(): Promise<void> {
    return new Promise((wake) => {
      this.#wake = wake;
    });
  }
}
