/**
 * A stream of requests that forks of a simulation share: each reads on from its own place, and a request is
 * drawn from the source once, by whoever comes to it first. What every reader has passed is let go.
 */

import type { RequestStream, WorkloadRequest } from '../../workload/index.ts';

/** A place between two requests: the one before it, and the next place once somebody has looked. */
interface Place {
  readonly request: WorkloadRequest | undefined;
  next: Place | null;
}

export class RequestTape implements RequestStream {
  readonly #source: RequestStream;
  #place: Place = { request: undefined, next: null };
  /** Requests taken so far. */
  #taken = 0;

  constructor(source: RequestStream) {
    this.#source = source;
  }

  get taken(): number {
    return this.#taken;
  }

  next(): WorkloadRequest | undefined {
    const place = this.#place;
    const next = (place.next ??= { request: this.#source.next(), next: null });
    if (next.request === undefined) return undefined;
    this.#place = next;
    this.#taken++;
    return next.request;
  }

  /** Another reader at this place. */
  fork(): RequestTape {
    const fork = new RequestTape(this.#source);
    fork.#place = this.#place;
    fork.#taken = this.#taken;
    return fork;
  }

  /** Moves on to the place behind so many requests of the source, of which none was taken yet. */
  skipTo(taken: number): void {
    while (this.#taken < taken && this.next() !== undefined);
  }
}
