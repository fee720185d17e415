/**
 * The requests that wait for room in the batch, in the order of a policy. A binary heap: the head is known at once,
 * adding and removing cost O(log n), and equal requests have one defined order (rank, arrival, id).
 *
 * Where the order goes by turns of the owners, new requests stand in lines beside the heap until they have had their turn; from
 * then on they are in the heap, by ticket, whenever they wait.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { QueueOrder } from './config.ts';
import { OwnerTurns } from './ownerTurns.ts';
import type { RequestState } from './request.ts';

/** `heapIndex` of a request that waits in its owner's line. */
const IN_LINE = -2;
/** `heapIndex` of a request that was set aside from there: it comes back. */
const OUT_OF_LINE = -3;

export class WaitingQueue {
  readonly order: QueueOrder;
  readonly #heap: RequestState[] = [];
  readonly #turns: OwnerTurns<RequestState> | null;
  #lastTicket = 0;
  #firstTicket = 0;

  constructor(order: QueueOrder) {
    this.order = order;
    this.#turns = order.inTurns === true ? new OwnerTurns() : null;
  }

  get size(): number {
    return this.#heap.length + (this.#turns?.size ?? 0);
  }

  /** The request that is next, or null. */
  head(): RequestState | null {
    if (this.#heap.length > 0) return this.#heap[0];
    return this.#turns?.first() ?? null;
  }

  /** Adds a new request: under `fcfs` behind all others. */
  append(state: RequestState): void {
    state.ticket = ++this.#lastTicket;
    if (this.#turns === null) {
      this.putBack(state);
      return;
    }
    invariant(state.heapIndex === -1, 'a request waits once');
    state.heapIndex = IN_LINE;
    this.#turns.add(state);
  }

  /** The request has its turn: it holds blocks from now on, and waits before all that had none. */
  take(state: RequestState): void {
    if (state.heapIndex !== IN_LINE) return;
    this.#turns?.remove(state, true);
    state.heapIndex = -1;
    this.putBack(state);
  }

  /** Others pass the request until `comeBack`: those of its owner too, but after the turns of all other owners. */
  setAside(state: RequestState): void {
    if (state.heapIndex !== IN_LINE) {
      this.remove(state);
      return;
    }
    this.#turns?.remove(state, true);
    state.heapIndex = OUT_OF_LINE;
  }

  comeBack(state: RequestState): void {
    if (state.heapIndex !== OUT_OF_LINE) {
      this.putBack(state);
      return;
    }
    this.#turns?.add(state);
    state.heapIndex = IN_LINE;
  }

  /** Adds a preempted request: under `fcfs` before all others. */
  prepend(state: RequestState): void {
    state.ticket = --this.#firstTicket;
    this.putBack(state);
  }

  /** Adds a request that left the queue for a while, with its old ticket. */
  putBack(state: RequestState): void {
    invariant(state.heapIndex === -1, 'a request waits once');
    state.heapIndex = this.#heap.length;
    this.#heap.push(state);
    this.#rise(state);
  }

  remove(state: RequestState): void {
    if (state.heapIndex === IN_LINE) {
      this.#turns?.remove(state, false);
      state.heapIndex = -1;
      return;
    }
    const at = state.heapIndex;
    invariant(this.#heap[at] === state, 'only a request that waits can leave the queue');
    const last = this.#heap.pop() as RequestState;
    state.heapIndex = -1;
    if (last === state) return;
    this.#place(last, at);
    this.#rise(last);
    this.#sink(last);
  }

  /** Whether `a` goes before `b`. Of two that wait in lines, the one that came first does. */
  isBefore(a: RequestState, b: RequestState): boolean {
    if (this.#turns !== null && (a.heapIndex === IN_LINE) !== (b.heapIndex === IN_LINE)) {
      return b.heapIndex === IN_LINE;
    }
    const rankA = this.order.rank(a);
    const rankB = this.order.rank(b);
    if (rankA !== rankB) return rankA < rankB;
    if (a.arrivalUs !== b.arrivalUs) return a.arrivalUs < b.arrivalUs;
    return a.request.id < b.request.id;
  }

  /** All waiting requests, in order. Makes an array: for inspection and tests. */
  toArray(): RequestState[] {
    const sorted = [...this.#heap].sort((a, b) => (this.isBefore(a, b) ? -1 : 1));
    return [...sorted, ...(this.#turns?.toArray() ?? [])];
  }

  #place(state: RequestState, at: number): void {
    this.#heap[at] = state;
    state.heapIndex = at;
  }

  #rise(state: RequestState): void {
    let at = state.heapIndex;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.isBefore(state, this.#heap[parent])) break;
      this.#place(this.#heap[parent], at);
      at = parent;
    }
    this.#place(state, at);
  }

  #sink(state: RequestState): void {
    const size = this.#heap.length;
    let at = state.heapIndex;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && this.isBefore(this.#heap[child + 1], this.#heap[child])) child++;
      if (!this.isBefore(this.#heap[child], state)) break;
      this.#place(this.#heap[child], at);
      at = child;
    }
    this.#place(state, at);
  }

  /** @param stateOf the request of a number */
  visitState(visitor: StateVisitor, stateOf: (number: number) => RequestState): void {
    this.#lastTicket = visitor.number(this.#lastTicket);
    this.#firstTicket = visitor.number(this.#firstTicket);
    visitor.value(
      () => this.#heap.map(({ number }) => number),
      (saved) => {
        this.#heap.length = 0;
        for (const number of saved) this.#heap.push(stateOf(number));
      },
    );
    this.#turns?.visitState(visitor, ({ number }) => number, stateOf);
  }

  checkIntegrity(): void {
    this.#turns?.checkIntegrity();
    for (let i = 0; i < this.#heap.length; i++) {
      const state = this.#heap[i];
      invariant(state.heapIndex === i, 'a waiting request knows where it is in the heap');
      invariant(
        i === 0 || this.isBefore(this.#heap[(i - 1) >> 1], state),
        'no waiting request stands behind one that goes after it',
      );
    }
  }
}
