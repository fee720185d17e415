/**
 * Requests that wait for room in HBM, first come first served within a priority. Whoever is first looks for
 * room again whenever some came free; the others wait behind.
 */

export interface Ticket {
  readonly priority: number;
  /** Called when the ticket is first, or when room came free while it is. */
  wake: () => void;
}

export class AdmissionQueue {
  /** The lowest priority number first, and within one the order of arrival. */
  readonly #tickets: Ticket[] = [];

  get waiting(): number {
    return this.#tickets.length;
  }

  /** Whether somebody of this priority or a more urgent one waits already. */
  isBehindOthers(priority: number): boolean {
    return this.#tickets.length > 0 && this.#tickets[0].priority <= priority;
  }

  /** @param ahead of those with the same priority: it was admitted before, and lost its room */
  join(priority: number, ahead = false): Ticket {
    const ticket: Ticket = { priority, wake: () => {} };
    let at = this.#tickets.length;
    const isAheadOf = (other: number): boolean => other > priority || (ahead && other === priority);
    while (at > 0 && isAheadOf(this.#tickets[at - 1].priority)) at--;
    this.#tickets.splice(at, 0, ticket);
    return ticket;
  }

  isFirst(ticket: Ticket): boolean {
    return this.#tickets[0] === ticket;
  }

  leave(ticket: Ticket): void {
    const at = this.#tickets.indexOf(ticket);
    if (at === -1) return;
    this.#tickets.splice(at, 1);
    if (at === 0) this.roomFreed();
  }

  /** Fulfilled when it is worth another look. */
  turn(ticket: Ticket): Promise<void> {
    return new Promise((resolve) => {
      ticket.wake = resolve;
    });
  }

  roomFreed(): void {
    this.#tickets[0]?.wake();
  }
}
