/**
 * What a step computes. The plan is a view on the batch, made anew by each `step` without garbage: read it
 * between `step` and `stepEnded`. Requests go in batch order:
 *
 *     for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) run(plan.sequence(seat), ...)
 *
 * A simulator that only needs sums takes `decodes` and `decodeContextTokens`, and walks the prefills alone.
 */

import type { Sequence } from '../../manager/sequences/blockTable/sequence.ts';
import type { Batch } from './batch.ts';
import type { ServingRequest } from './request.ts';

export class StepPlan<R extends ServingRequest = ServingRequest> {
  readonly #batch: Batch;
  /** Requests that joined the batch in this step, in order. */
  readonly admitted: R[] = [];
  /** Requests that gave way in this step, in order. */
  readonly preempted: R[] = [];
  /** Decoding requests that the step leaves out, because its budget is spent or their blocks are missing. */
  readonly leftOut: R[] = [];
  /** Tokens computed, over all requests. 0: there is nothing to execute, and no `stepEnded` to call. */
  tokens = 0;
  /** Requests that compute tokens. */
  requests = 0;
  /** Of these, requests that compute the token they sampled last. */
  decodes = 0;
  /** Tokens before that one, over all decodes. */
  decodeContextTokens = 0;

  constructor(batch: Batch) {
    this.#batch = batch;
  }

  /** Requests that compute more than their newest token, or resume. */
  get prefills(): number {
    return this.requests - this.decodes;
  }

  /** The first seat with tokens to compute, or -1. */
  first(): number {
    return this.tokens === 0 ? -1 : this.#withTokens(this.#batch.first());
  }

  next(seat: number): number {
    return this.#withTokens(this.#batch.next(seat));
  }

  /** The first seat with tokens to prefill, or -1. */
  firstPrefill(): number {
    return this.#prefilling(this.#batch.firstPrefill());
  }

  nextPrefill(seat: number): number {
    return this.#prefilling(this.#batch.nextAlike(seat));
  }

  request(seat: number): R {
    return this.#batch.state(seat).request as R;
  }

  /** The request's blocks, for its block table. All that [0, from + tokens) needs are in place. */
  sequence(seat: number): Sequence {
    return this.#batch.state(seat).sequence as Sequence;
  }

  /** Tokens of the request whose KV is in its blocks already: the first token that the step computes. */
  from(seat: number): number {
    return this.#batch.computed(seat);
  }

  /** Tokens of the request that exist, prompt and generated. */
  knownTokensOf(seat: number): number {
    return this.#batch.known(seat);
  }

  /** Tokens that the step computes for the request. */
  tokensOf(seat: number): number {
    return this.#batch.newTokens[seat];
  }

  /** Whether the step computes the request's newest token, so that it samples the next one. */
  samples(seat: number): boolean {
    return this.#batch.computed(seat) + this.#batch.newTokens[seat] === this.#batch.known(seat);
  }

  /** For the scheduler: forgets the last step. */
  clear(): void {
    this.tokens = 0;
    this.requests = 0;
    this.decodes = 0;
    this.decodeContextTokens = 0;
    if (this.admitted.length > 0) this.admitted.length = 0;
    if (this.preempted.length > 0) this.preempted.length = 0;
    if (this.leftOut.length > 0) this.leftOut.length = 0;
  }

  #withTokens(from: number): number {
    let seat = from;
    while (seat !== -1 && this.#batch.newTokens[seat] === 0) seat = this.#batch.next(seat);
    return seat;
  }

  #prefilling(from: number): number {
    let seat = from;
    while (seat !== -1 && this.#batch.newTokens[seat] === 0) seat = this.#batch.nextAlike(seat);
    return seat;
  }
}
