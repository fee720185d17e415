/**
 * An admission policy that puts requests off for ever would keep a simulation from its end. Delays are
 * counted over the run, and too many of them are an error of the policy, not of the machine's time.
 */

import type {
  AdmissionDecision,
  AdmissionPolicy,
  Outcome,
  PlainState,
  RequestView,
} from '../../sim/control/index.ts';
import { PolicyError } from '../../sim/sandbox/index.ts';

/** Delays for each request that has been decided about, on average. */
export const DELAYS_A_REQUEST = 1000;

export class BoundedDelays implements AdmissionPolicy {
  readonly name: string;
  readonly completed?: (outcome: Outcome) => void;
  readonly ended?: (request: RequestView, nowUs: number) => void;
  readonly #policy: AdmissionPolicy;
  #decided = 0;
  #delayed = 0;
  /** Rows of requests that have been put off and not decided about yet. */
  #waiting = new Set<number>();

  constructor(policy: AdmissionPolicy) {
    this.#policy = policy;
    this.name = policy.name;
    if (policy.completed !== undefined) this.completed = (outcome) => policy.completed?.(outcome);
    if (policy.ended !== undefined) this.ended = (request, nowUs) => policy.ended?.(request, nowUs);
  }

  /** @throws PolicyError invalid_decision */
  decide(...asked: Parameters<AdmissionPolicy['decide']>): AdmissionDecision {
    const [{ number, id }, , { nowUs }] = asked;
    const decision = this.#policy.decide(...asked);
    if (decision.verdict !== 'delay') {
      if (!this.#waiting.delete(number)) this.#decided++;
      return decision;
    }
    if (!this.#waiting.has(number)) {
      this.#waiting.add(number);
      this.#decided++;
    }
    if (++this.#delayed <= DELAYS_A_REQUEST * this.#decided) return decision;
    throw new PolicyError(
      'invalid_decision',
      `${this.#delayed} delays for ${this.#decided} requests, the last by ${decision.durationUs} µs. ` +
        'Delay for longer, and admit or reject once request.waitedUs is large',
      { path: 'admission', requestId: id, simTimeUs: nowUs },
    );
  }

  snapshot(): PlainState {
    const counts = [this.#decided, this.#delayed];
    return { policy: this.#policy.snapshot(), counts, waiting: [...this.#waiting] };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const { policy, counts, waiting } = state as {
      readonly policy: PlainState;
      readonly counts: readonly [number, number];
      readonly waiting: readonly number[];
    };
    this.#policy.restore(policy);
    [this.#decided, this.#delayed] = counts;
    this.#waiting = new Set(waiting);
  }
}
