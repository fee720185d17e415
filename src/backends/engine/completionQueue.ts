/**
 * Ends of jobs, handed out in the order in which the jobs were submitted, whatever order they came in. A job past its
 * deadline loses its place: it holds up nobody any more, and its own end is handed out whenever it comes, if ever.
 */

import type { Completion } from '../../runtime/transfer/driver.ts';

/** A job's place in the order. */
export interface Ticket {
  readonly deadlineUs: number;
  end: Completion | null;
  passed: boolean;
}

export class CompletionQueue {
  /** Tickets in order of submission, from the oldest that was not handed out. */
  #order: Ticket[] = [];
  /** Ends of jobs that had lost their place, in the order in which they came. */
  #late: Completion[] = [];
  #passed = 0;
  #wake: (() => void) | null = null;

  /** Jobs whose end was not handed out yet, those past their deadline included. */
  get waiting(): number {
    return this.#order.length + this.#passed + this.#late.length;
  }

  /** Jobs past their deadline that have not ended. */
  get overdue(): number {
    return this.#passed;
  }

  /** When the next job that still has its place is due; infinity when there is none. */
  get nextDeadlineUs(): number {
    return this.#order.reduce(
      (soonest, { end, deadlineUs }) => (end === null ? Math.min(soonest, deadlineUs) : soonest),
      Number.POSITIVE_INFINITY,
    );
  }

  ticket(deadlineUs: number): Ticket {
    const ticket: Ticket = { deadlineUs, end: null, passed: false };
    this.#order.push(ticket);
    return ticket;
  }

  /** The first end of a job counts. */
  settle(ticket: Ticket, end: Completion): void {
    if (ticket.end !== null) return;
    ticket.end = end;
    if (ticket.passed) {
      this.#passed--;
      this.#late.push(end);
    }
    if (ticket.passed || ticket === this.#order[0]) this.#wake?.();
  }

  /** Jobs that are due and have not ended lose their place. */
  pass(nowUs: number): void {
    const kept = this.#order.filter((ticket) => {
      ticket.passed = ticket.end === null && ticket.deadlineUs <= nowUs;
      return !ticket.passed;
    });
    this.#passed += this.#order.length - kept.length;
    this.#order = kept;
    if (this.#hasReady()) this.#wake?.();
  }

  async take(): Promise<readonly Completion[]> {
    while (this.waiting > 0 && !this.#hasReady()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = null;
    }
    const ends = this.#late;
    this.#late = [];
    let count = 0;
    for (; count < this.#order.length && this.#order[count].end !== null; count++) {
      ends.push(this.#order[count].end!);
    }
    this.#order.splice(0, count);
    return ends;
  }

  #hasReady(): boolean {
    return this.#late.length > 0 || (this.#order.length > 0 && this.#order[0].end !== null);
  }
}
