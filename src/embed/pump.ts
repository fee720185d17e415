/**
 * Keeps manager and engine going: jobs that the manager issues get a deadline and are submitted, ends that the engine
 * reports are handed back, and whoever waits for a condition is woken. A job that is not back by its deadline is given
 * up: whoever waited for it goes on without, its slots wait for it. While nothing is in flight nothing runs here at all.
 */

import type { TransferEngine } from '../backends/engine/index.ts';
import { type Completion, type KVManager, Outcome } from '../runtime/index.ts';

interface Waiter {
  readonly done: () => boolean;
  readonly wake: () => void;
}

/** Calls `wake` once, `delayUs` microseconds from now. */
export type Alarm = (delayUs: number, wake: () => void) => void;

/** An alarm that does not keep the process alive. */
export const processAlarm: Alarm = (delayUs, wake) => {
  setTimeout(wake, Math.ceil(delayUs / 1000)).unref();
};

export class Pump {
  readonly #manager: KVManager;
  readonly #engine: TransferEngine;
  readonly #deadlineUs: number;
  readonly #alarm: Alarm;
  #waiters: Waiter[] = [];
  #running = false;
  #alarmed = false;
  #held = false;

  /** @param deadlineUs microseconds after which a job is given up */
  constructor(manager: KVManager, engine: TransferEngine, deadlineUs: number, alarm: Alarm = processAlarm) {
    this.#manager = manager;
    this.#engine = engine;
    this.#deadlineUs = deadlineUs;
    this.#alarm = alarm;
  }

  /** Call it after every call of the manager. */
  poke(): void {
    this.#submit();
    this.#wakeWaiters();
    if (!this.#running && this.#engine.inFlight > 0) void this.#run();
  }

  /** Keeps what the manager issues until `resume`: there is no store to submit it to. Ends are still handed back. */
  hold(): void {
    this.#held = true;
  }

  resume(): void {
    this.#held = false;
    this.poke();
  }

  /** Fulfilled as soon as the condition holds. */
  async until(done: () => boolean): Promise<void> {
    this.poke();
    if (done()) return;
    await new Promise<void>((wake) => {
      this.#waiters.push({ done, wake });
    });
  }

  /** It is over in the same turn in which it finds nothing in flight: whoever submits later begins it again. */
  async #run(): Promise<void> {
    this.#running = true;
    try {
      while (this.#engine.inFlight > 0) {
        for (const end of await this.#engine.take()) this.#complete(end);
        this.#submit();
        this.#wakeWaiters();
      }
    } finally {
      this.#running = false;
    }
  }

  #wakeWaiters(): void {
    this.#waiters = this.#waiters.filter(({ done, wake }) => {
      if (!done()) return true;
      wake();
      return false;
    });
  }

  #complete({ job, outcome, digestLo, digestHi }: Completion): void {
    this.#manager.complete(job, outcome, this.#engine.nowUs(), digestLo, digestHi);
  }

  #submit(): void {
    if (this.#held) return;
    const transfers = [];
    const deadlineUs = this.#engine.nowUs() + this.#deadlineUs;
    for (let job = this.#manager.nextJob(); job !== 0; job = this.#manager.nextJob()) {
      this.#manager.setDeadline(job, deadlineUs);
      transfers.push(this.#manager.transfer(job));
    }
    if (transfers.length === 0) return;
    this.#engine.submit(transfers);
    this.#watch();
  }

  #watch(): void {
    const dueUs = this.#engine.nextDeadlineUs;
    if (this.#alarmed || dueUs === Number.POSITIVE_INFINITY) return;
    this.#alarmed = true;
    this.#alarm(Math.max(0, dueUs - this.#engine.nowUs()), () => {
      this.#alarmed = false;
      this.#expire();
      this.#watch();
    });
  }

  #expire(): void {
    const nowUs = this.#engine.nowUs();
    if (this.#engine.nextDeadlineUs > nowUs) return;
    this.#manager.expire(nowUs, Outcome.TIMED_OUT);
    this.#engine.passOverdue();
    this.poke();
  }
}
