/**
 * Means over the requests that have completed on each instance since the start, as the router saw them end.
 */

import type { Outcome } from '../../outcome.ts';
import type { PlainState, Stateful } from '../../policy.ts';

export interface OutcomeMean {
  readonly requests: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** From arrival to the first token. */
  readonly ttftUs: number;
  /** From the first token to the end. */
  readonly decodeUs: number;
}

type Sums = { -readonly [K in keyof OutcomeMean]: number };

const zero: OutcomeMean = { requests: 0, promptTokens: 0, outputTokens: 0, ttftUs: 0, decodeUs: 0 };

function meanOf(sums: OutcomeMean): OutcomeMean {
  const { requests } = sums;
  if (requests === 0) return zero;
  return {
    requests,
    promptTokens: sums.promptTokens / requests,
    outputTokens: sums.outputTokens / requests,
    ttftUs: sums.ttftUs / requests,
    decodeUs: sums.decodeUs / requests,
  };
}

export class OutcomeMeans implements Stateful {
  readonly #byInstance = new Map<number, Sums>();

  /** All zeros before the first. */
  of(instance: number): OutcomeMean {
    return meanOf(this.#byInstance.get(instance) ?? zero);
  }

  /** Over all instances. */
  get overall(): OutcomeMean {
    const sums: Sums = { ...zero };
    for (const each of this.#byInstance.values()) addTo(sums, each);
    return meanOf(sums);
  }

  completed({ request, instance, completed, outputTokens, ttftUs, e2eUs }: Outcome): void {
    if (!completed || ttftUs < 0) return;
    let sums = this.#byInstance.get(instance);
    if (sums === undefined) this.#byInstance.set(instance, (sums = { ...zero }));
    const decodeUs = e2eUs - ttftUs;
    addTo(sums, { requests: 1, promptTokens: request.promptTokens, outputTokens, ttftUs, decodeUs });
  }

  removed(instance: number): void {
    this.#byInstance.delete(instance);
  }

  snapshot(): PlainState {
    return [...this.#byInstance].map(([instance, sums]) => ({ instance, ...sums }));
  }

  restore(state: PlainState): void {
    this.#byInstance.clear();
    // the state is what `snapshot` made
    for (const { instance, ...sums } of state as unknown as readonly (Sums & { instance: number })[]) {
      this.#byInstance.set(instance, sums);
    }
  }
}

function addTo(sums: Sums, other: OutcomeMean): void {
  sums.requests += other.requests;
  sums.promptTokens += other.promptTokens;
  sums.outputTokens += other.outputTokens;
  sums.ttftUs += other.ttftUs;
  sums.decodeUs += other.decodeUs;
}
