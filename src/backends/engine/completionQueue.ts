/** Ends of jobs, handed out in the order in which the jobs were submitted, whatever order they came in. */

import type { Completion } from '../../runtime/transfer/driver.ts';

export class CompletionQueue {
  readonly #ends: (Completion | null)[] = [];
  /** Tickets below this were handed out. */
  #head = 0;
  #tickets = 0;
  #wake: (() => void) | null = null;

  get waiting(): number {
    return this.#tickets - this.#head;
  }

  /** A place in the order. */
  ticket(): number {
    this.#ends.push(null);
    return this.#tickets++;
  }

  settle(ticket: number, end: Completion): void {
    this.#ends[ticket - this.#head] = end;
    if (ticket === this.#head) this.#wake?.();
  }

  async take(): Promise<readonly Completion[]> {
    if (this.waiting === 0) return [];
    if (this.#ends[0] === null) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = null;
    }
    let count = 0;
    while (count < this.#ends.length && this.#ends[count] !== null) count++;
    this.#head += count;
    return this.#ends.splice(0, count) as Completion[];
  }
}
