/**
 * The requests that wait for room in the batch, in the order of a policy. A binary heap: the head is known at once,
 * adding and removing cost O(log n), and equal requests have one defined order (rank, arrival, id).
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { QueueOrder } from './config.ts';
import type { RequestState } from './request.ts';

export class WaitingQueue {
  readonly order: QueueOrder;
  readonly #heap: RequestState[] = [];
  #lastTicket = 0;
  #firstTicket = 0;

  constructor(order: QueueOrder) {
    this.order = order;
  }

  get size(): number {
    return this.#heap.length;
  }

  /** The request that is next, or null. */
  head(): RequestState | null {
    return this.#heap.length === 0 ? null : this.#heap[0];
  }

  /** Adds a new request: under `fcfs` behind all others. */
  append(state: RequestState): void {
    state.ticket = ++this.#lastTicket;
    this.putBack(state);
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
    const at = state.heapIndex;
    invariant(this.#heap[at] === state, 'only a request that waits can leave the queue');
    const last = this.#heap.pop() as RequestState;
    state.heapIndex = -1;
    if (last === state) return;
    this.#place(last, at);
    this.#rise(last);
    this.#sink(last);
  }

  /** Whether `a` goes before `b`. */
  isBefore(a: RequestState, b: RequestState): boolean {
    const rankA = this.order.rank(a);
    const rankB = this.order.rank(b);
    if (rankA !== rankB) return rankA < rankB;
    if (a.arrivalUs !== b.arrivalUs) return a.arrivalUs < b.arrivalUs;
    return a.request.id < b.request.id;
  }

  /** All waiting requests, in order. Makes an array: for inspection and tests. */
  toArray(): RequestState[] {
    return [...this.#heap].sort((a, b) => (this.isBefore(a, b) ? -1 : 1));
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
  }

  checkIntegrity(): void {
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
