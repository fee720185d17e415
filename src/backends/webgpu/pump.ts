/**
 * Works on calls one after the other, in the order of arrival. Work starts in a microtask, so that calls made in one
 * turn of the event loop are packed into the same submit; `flush` runs whenever no call is left.
 */

export class Pump<Call> {
  readonly #work: (call: Call) => Promise<void>;
  readonly #flush: () => void;
  #calls: Call[] = [];
  #running = false;

  constructor(work: (call: Call) => Promise<void>, flush: () => void) {
    this.#work = work;
    this.#flush = flush;
  }

  push(call: Call): void {
    this.#calls.push(call);
    if (this.#running) return;
    this.#running = true;
    queueMicrotask(() => void this.#run());
  }

  async #run(): Promise<void> {
    while (this.#calls.length > 0) {
      const calls = this.#calls;
      this.#calls = [];
      for (const call of calls) await this.#work(call);
    }
    this.#flush();
    this.#running = false;
  }
}
