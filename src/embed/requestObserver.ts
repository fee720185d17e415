/**
 * What can be watched of a runtime's requests: the moments of each on its way. An observer changes nothing. Times are the
 * runtime's clock, in microseconds; of one request they never go back.
 */

import type { RequestExtras, SequenceId, ServingRequest, StepPlan } from '../runtime/index.ts';

export interface AskedRequest {
  /** As the scheduler knows it; undefined for a sequence of `begin`. */
  readonly id: string | undefined;
  readonly tenant: string;
  readonly promptTokens: number;
  /** Its tokens: the first `promptTokens` of `words`. Copy what is to be kept. */
  readonly prompt: { readonly words: Uint32Array };
  readonly extras: RequestExtras | undefined;
}

export interface RequestObserver {
  /** A request came in. @returns what is told of the rest of its way */
  asked(request: AskedRequest, nowUs: number): RequestWatch;
}

/** Each moment comes once, unless it says otherwise. A request may end after any of them. */
export interface RequestWatch {
  /** Its block keys are made: from here on it waits for room. */
  hashed(nowUs: number): void;
  /** It has its room, and what it found is pinned. Again after it gave its room up. */
  placed(nowUs: number): void;
  /** What lower tiers hold is in place, or given up: from here on it computes. */
  filled(nowUs: number, cachedTokens: number, sequence: SequenceId): void;
  /** Its prompt is computed and, with a scheduler, its first token is there. */
  prefilled(nowUs: number): void;
  /** A token behind the first. Once a token. */
  token(nowUs: number): void;
  /** @param how `stop`, `length`, `capacity`, `aborted`, `released`, `cancelled` or `refused` */
  ended(nowUs: number, how: string): void;
}

/** The observers of one runtime, in the order in which they came. */
export class RequestObservers {
  readonly #observers: RequestObserver[] = [];

  /** @returns unsubscribe */
  add(observer: RequestObserver): () => void {
    this.#observers.push(observer);
    return () => {
      const at = this.#observers.indexOf(observer);
      if (at !== -1) this.#observers.splice(at, 1);
    };
  }

  /** What to tell of the request; undefined while none observes. */
  asked(request: AskedRequest, nowUs: number): RequestWatch | undefined {
    if (this.#observers.length === 0) return undefined;
    const watches = this.#observers.map((observer) => observer.asked(request, nowUs));
    return watches.length === 1 ? watches[0] : new SeveralWatches(watches);
  }
}

class SeveralWatches implements RequestWatch {
  readonly #watches: readonly RequestWatch[];

  constructor(watches: readonly RequestWatch[]) {
    this.#watches = watches;
  }

  hashed(nowUs: number): void {
    for (const watch of this.#watches) watch.hashed(nowUs);
  }

  placed(nowUs: number): void {
    for (const watch of this.#watches) watch.placed(nowUs);
  }

  filled(nowUs: number, cachedTokens: number, sequence: SequenceId): void {
    for (const watch of this.#watches) watch.filled(nowUs, cachedTokens, sequence);
  }

  prefilled(nowUs: number): void {
    for (const watch of this.#watches) watch.prefilled(nowUs);
  }

  token(nowUs: number): void {
    for (const watch of this.#watches) watch.token(nowUs);
  }

  ended(nowUs: number, how: string): void {
    for (const watch of this.#watches) watch.ended(nowUs, how);
  }
}

// What a scheduler tells of its requests.

export interface WatchedRequest {
  readonly watch: RequestWatch | undefined;
  /** Whether `watch` was told that it computes. */
  isFilled: boolean;
  /** Tokens that were sampled so far. */
  readonly generated: number;
}

/** Requests that joined the batch have their room; a request of which the plan has tokens has what it found. */
export function tellOfPlan(plan: StepPlan<WatchedRequest & ServingRequest>, nowUs: number): void {
  for (const { watch } of plan.admitted) watch?.placed(nowUs);
  for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
    const request = plan.request(seat);
    if (request.watch === undefined || request.isFilled) continue;
    request.isFilled = true;
    request.watch.filled(nowUs, plan.from(seat), plan.sequence(seat).id);
  }
}

/** @param sampled each request that has a token more now */
export function tellOfTokens(
  sampled: readonly { readonly id: string }[],
  requests: ReadonlyMap<string, WatchedRequest>,
  nowUs: number,
): void {
  for (const { id } of sampled) {
    const request = requests.get(id);
    if (request?.watch === undefined) continue;
    if (request.generated === 1) request.watch.prefilled(nowUs);
    else request.watch.token(nowUs);
  }
}
