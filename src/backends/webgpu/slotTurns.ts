/**
 * Calls that name the same slot take effect in the order in which they were made. A call's turn lasts until its commands
 * are submitted, since the queue keeps the order from there on; a write's lasts until its bytes are verified. A call
 * waits only for earlier calls that share a slot with it, so a read need not wait for an upload of other slots.
 *
 * No deadlock: every wait is for an earlier call, and each kind of call is worked on in the order of arrival.
 */

export class SlotTurn {
  /** Earlier calls on one of the slots; forgotten at the end, so that turns do not chain up. */
  #after: readonly SlotTurn[];
  #left = false;
  #leaving: Promise<void> | undefined;
  #announce: () => void = () => {};
  readonly number: number;

  constructor(number: number, after: readonly SlotTurn[]) {
    this.number = number;
    this.#after = after;
  }

  get mustWait(): boolean {
    return this.#after.some((turn) => !turn.#left);
  }

  async wait(): Promise<void> {
    for (const turn of this.#after) await turn.#leave();
  }

  markLeft(): void {
    this.#left = true;
    this.#after = [];
    this.#announce();
  }

  #leave(): Promise<void> | undefined {
    if (this.#left) return undefined;
    this.#leaving ??= new Promise((resolve) => {
      this.#announce = resolve;
    });
    return this.#leaving;
  }
}

export class SlotTurns {
  /** By slot, the number of the turn that named it last. Numbers of turns that are over are left where they stand. */
  readonly #last: Uint32Array;
  readonly #current: Map<number, SlotTurn> = new Map();
  #number = 0;

  constructor(slotLimit: number) {
    this.#last = new Uint32Array(slotLimit);
  }

  /** @param slots those outside of the pool are nobody's, and wait for nobody */
  enter(slots: readonly number[]): SlotTurn {
    const number = this.#nextNumber();
    let after: Set<SlotTurn> | undefined;
    for (const slot of slots) {
      const last = this.#current.get(this.#last[slot] ?? 0);
      if (last !== undefined) {
        after ??= new Set();
        after.add(last);
      }
      this.#last[slot] = number;
    }
    const turn = new SlotTurn(number, after === undefined ? [] : [...after]);
    this.#current.set(number, turn);
    return turn;
  }

  /** The turn is over, or there was nothing to do in it. */
  leave(turn: SlotTurn): void {
    if (this.#current.get(turn.number) === turn) this.#current.delete(turn.number);
    turn.markLeft();
  }

  /** Numbers come round after 2^32 turns. Whoever then meets an old one waits for a call that he need not have waited for. */
  #nextNumber(): number {
    do this.#number = (this.#number + 1) >>> 0 || 1;
    while (this.#current.has(this.#number));
    return this.#number;
  }
}
