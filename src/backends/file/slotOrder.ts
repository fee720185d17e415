/**
 * Requests on one slot take their turn in the order in which they came; requests on different slots do not know of each
 * other. `ready` collects those whose turn it is.
 */

import type { StoreItem, StoreResult } from '../../runtime/transfer/tierStore.ts';

export interface SlotRequest {
  readonly kind: 'read' | 'write';
  readonly item: StoreItem;
  readonly end: (result: StoreResult) => void;
  /** Where its record lies in the file, known once its turn has come. */
  offset: number;
  /** The item's own memory did not do for direct I/O: go through staging. */
  staged: boolean;
  /** Number of the record that a write made of it, 0 before it began. */
  sequence: number;
  /** Its region counts it among the writes under way. */
  begun: boolean;
  /** Somebody was told of bytes that it read: it cannot be read once more. */
  told: boolean;
  next: SlotRequest | undefined;
}

export class SlotOrder {
  readonly #last: Map<number, SlotRequest> = new Map();
  #ready: SlotRequest[] = [];

  /** Slots with requests under way. */
  get size(): number {
    return this.#last.size;
  }

  get hasReady(): boolean {
    return this.#ready.length > 0;
  }

  enter(request: SlotRequest): void {
    const last = this.#last.get(request.item.slot);
    this.#last.set(request.item.slot, request);
    if (last === undefined) this.#ready.push(request);
    else last.next = request;
  }

  /** The request's turn is over; the next one on its slot is ready. */
  leave(request: SlotRequest): void {
    if (request.next !== undefined) this.#ready.push(request.next);
    else this.#last.delete(request.item.slot);
  }

  /** The requests whose turn has come since the last call. */
  takeReady(): SlotRequest[] {
    const ready = this.#ready;
    this.#ready = [];
    return ready;
  }
}
