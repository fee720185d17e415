/**
 * Requests that wait for room in HBM, first come first served within a priority. Whoever is first looks for
 * room again whenever some came free; the others wait behind. A request that steps aside keeps its place, but
 * nobody waits behind it.
 */

export interface Ticket {
  readonly priority: number;
  isAside: boolean;
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
    const first = this.#first;
    return first !== undefined && first.priority <= priority;
  }

  /** @param ahead of those with the same priority: it was admitted before, and lost its room */
  join(priority: number, ahead = false): Ticket {
    const ticket: Ticket = { priority, isAside: false, wake: () => {} };
    let at = this.#tickets.length;
    const isAheadOf = (other: number): boolean => other > priority || (ahead && other === priority);
    while (at > 0 && isAheadOf(this.#tickets[at - 1].priority)) at--;
    this.#tickets.splice(at, 0, ticket);
    return ticket;
  }

  isFirst(ticket: Ticket): boolean {
    return this.#first === ticket;
  }

  leave(ticket: Ticket): void {
    const wasFirst = this.isFirst(ticket);
    const at = this.#tickets.indexOf(ticket);
    if (at === -1) return;
    this.#tickets.splice(at, 1);
    if (wasFirst) this.roomFreed();
  }

  /** Those behind the ticket go ahead while `work` is under way. */
  async aside(ticket: Ticket, work: () => Promise<void>): Promise<void> {
    const wasFirst = this.isFirst(ticket);
    ticket.isAside = true;
    if (wasFirst) this.roomFreed();
    try {
      await work();
    } finally {
      ticket.isAside = false;
    }
  }

  /** Fulfilled when it is worth another look. */
  turn(ticket: Ticket): Promise<void> {
    return new Promise((resolve) => {
      ticket.wake = resolve;
    });
  }

  roomFreed(): void {
    this.#first?.wake();
  }

  get #first(): Ticket | undefined {
    return this.#tickets.find(({ isAside }) => !isAside);
  }
}
