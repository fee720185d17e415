/**
 * A stream of requests that forks of a simulation share: each reads on from its own place, and a request is
 * drawn from the source once, by whoever comes to it first. What every reader has passed is let go.
 */

import type { RequestStream, WorkloadRequest } from '../../workload/index.ts';

/** A place between two requests, and what follows once somebody has looked. */
interface Place {
  following: { readonly request: WorkloadRequest | undefined; readonly place: Place } | null;
}

export class RequestTape implements RequestStream {
  readonly #source: RequestStream;
  #place: Place = { following: null };
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
    place.following ??= { request: this.#source.next(), place: { following: null } };
    const { request, place: next } = place.following;
    if (request === undefined) return undefined;
    this.#place = next;
    this.#taken++;
    return request;
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
