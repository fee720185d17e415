/** The policies that are told of outcomes, and when first tokens came, as far as somebody wants to know. */

import type { Outcome } from '../outcome.ts';
import type { NamedPolicy, PlainState, Stateful } from '../policy.ts';
import type { RequestView } from '../request.ts';

type Learner = Pick<NamedPolicy, 'completed'>;

export class Learners implements Stateful {
  readonly #policies: readonly Learner[];
  /** By request: when its first token came. */
  readonly #firstUs = new Map<number, number>();

  constructor(policies: readonly Learner[]) {
    this.#policies = [...new Set(policies)].filter(({ completed }) => completed !== undefined);
  }

  firstToken(request: RequestView, nowUs: number): void {
    if (this.#policies.length > 0 && !this.#firstUs.has(request.number)) {
      this.#firstUs.set(request.number, nowUs);
    }
  }

  ended(outcome: Omit<Outcome, 'ttftUs' | 'e2eUs'>): void {
    if (this.#policies.length === 0) return;
    const { request, nowUs } = outcome;
    const firstUs = this.#firstUs.get(request.number);
    this.#firstUs.delete(request.number);
    const ttftUs = firstUs === undefined ? -1 : firstUs - request.arrivalUs;
    const whole: Outcome = { ...outcome, ttftUs, e2eUs: nowUs - request.arrivalUs };
    for (const policy of this.#policies) policy.completed?.(whole);
  }

  snapshot(): PlainState {
    return [...this.#firstUs].map(([request, timeUs]) => [request, timeUs]);
  }

  restore(state: PlainState): void {
    this.#firstUs.clear();
    // the state is what `snapshot` made
    for (const [request, timeUs] of state as unknown as readonly [number, number][]) {
      this.#firstUs.set(request, timeUs);
    }
  }
}
