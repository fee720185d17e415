/**
 * Keeps manager and driver going: jobs that the manager issues are submitted, ends that the driver reports are handed
 * back, and whoever waits for a condition is woken. While nothing is in flight it does nothing at all.
 */

import type { Completion, JobId, KVManager, TransferDriver } from '../../runtime/index.ts';

interface Waiter {
  readonly done: () => boolean;
  readonly wake: () => void;
}

export class Pump {
  readonly #manager: KVManager;
  readonly #driver: TransferDriver;
  #waiters: Waiter[] = [];
  #running: Promise<void> | null = null;

  constructor(manager: KVManager, driver: TransferDriver) {
    this.#manager = manager;
    this.#driver = driver;
  }

  /** Call it after every call of the manager. */
  poke(): void {
    this.#submit();
    if (this.#running !== null || this.#driver.inFlight === 0) return;
    this.#running = this.#run().finally(() => {
      this.#running = null;
    });
  }

  /** Fulfilled as soon as the condition holds. */
  async until(done: () => boolean): Promise<void> {
    this.poke();
    if (done()) return;
    await new Promise<void>((wake) => {
      this.#waiters.push({ done, wake });
    });
  }

  async #run(): Promise<void> {
    while (this.#driver.inFlight > 0) {
      for (const end of await this.#driver.take()) this.#complete(end);
      this.#submit();
      this.#waiters = this.#waiters.filter(({ done, wake }) => {
        if (!done()) return true;
        wake();
        return false;
      });
    }
  }

  #complete({ job, outcome, digestLo, digestHi }: Completion): void {
    this.#manager.complete(job, outcome, this.#driver.nowUs(), digestLo, digestHi);
  }

  #submit(): void {
    const transfers = [];
    for (let job = this.#manager.nextJob(); job !== 0; job = this.#manager.nextJob()) {
      transfers.push(this.#manager.transfer(job as JobId));
    }
    if (transfers.length > 0) this.#driver.submit(transfers);
  }
}
