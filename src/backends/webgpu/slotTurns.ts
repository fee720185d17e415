/**
 * Calls that name the same slot take effect in the order in which they were made. A call's turn lasts until its commands
 * are submitted, since the queue keeps the order from there on; a write's lasts until its bytes are verified. A call
 * waits only for earlier calls that share a slot with it, so a read need not wait for an upload of other slots.
 *
 * No deadlock: every wait is for an earlier call, and each kind of call is worked on in the order of arrival.
 */

export class SlotTurn {
  readonly slots: readonly number[];
  /** Earlier calls on one of the slots; forgotten at the end, so that turns do not chain up. */
  #after: readonly SlotTurn[];
  #left = false;
  #leaving: Promise<void> | undefined;
  #announce: () => void = () => {};

  constructor(slots: readonly number[], after: readonly SlotTurn[]) {
    this.slots = slots;
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
  readonly #last: Map<number, SlotTurn> = new Map();

  enter(slots: readonly number[]): SlotTurn {
    const after = new Set<SlotTurn>();
    for (const slot of slots) {
      const last = this.#last.get(slot);
      if (last !== undefined) after.add(last);
    }
    const turn = new SlotTurn(slots, [...after]);
    for (const slot of slots) this.#last.set(slot, turn);
    return turn;
  }

  /** The turn is over, or there was nothing to do in it. */
  leave(turn: SlotTurn): void {
    for (const slot of turn.slots) {
      if (this.#last.get(slot) === turn) this.#last.delete(slot);
    }
    turn.markLeft();
  }
}
