/** llm-d's program-aware fairness by least attained service; a program is a tenant here. */

import { elementary } from '../../random/index.ts';
import type { Outcome } from '../outcome.ts';
import type { PlainState, Stateful } from '../policy.ts';
import { flowOf } from './bands.ts';
import type { GatewayEntry } from './gateway.ts';

export interface ServiceRules {
  readonly serviceWeight: number;
  readonly waitWeight: number;
  readonly halfLifeUs: number;
}

/** Output tokens cost so many prompt tokens. */
const OUTPUT_WEIGHT = 2;

/**
 * The flow with the highest serviceWeight x (1 - s) + waitWeight x w is served: s is the attained service of
 * its tenant and w the wait of its first entry, both scaled to 0 to 1 over the flows of the band, and 0 where
 * all are alike; of equal ones that whose first entry came first. A completed request adds its prompt tokens
 * and twice its output tokens; what was attained halves in each half-life of simulated time. (llm-d-router,
 * `program-aware-fairness` with the strategy `las`.)
 */
export class AttainedService implements Stateful {
  readonly #rules: ServiceRules;
  readonly #byTenant = new Map<string, { tokens: number; atUs: number }>();

  constructor(rules: ServiceRules) {
    this.#rules = rules;
  }

  /** In weighted tokens. */
  of(tenant: string, nowUs: number): number {
    const attained = this.#byTenant.get(tenant);
    if (attained === undefined) return 0;
    return attained.tokens * elementary.pow(0.5, (nowUs - attained.atUs) / this.#rules.halfLifeUs);
  }

  completed({ request, completed, outputTokens, nowUs }: Outcome): void {
    if (!completed) return;
    const tenant = flowOf(request);
    const tokens = this.of(tenant, nowUs) + request.promptTokens + OUTPUT_WEIGHT * outputTokens;
    this.#byTenant.set(tenant, { tokens, atUs: nowUs });
  }

  /** @param heads the first entry of each flow of a band, at least one */
  next(heads: readonly GatewayEntry[], nowUs: number): GatewayEntry {
    const { serviceWeight, waitWeight } = this.#rules;
    const services = heads.map(({ request }) => this.of(flowOf(request), nowUs));
    const waits = heads.map(({ enqueuedUs }) => nowUs - enqueuedUs);
    const service = scaled(services);
    const wait = scaled(waits);
    const score = (i: number): number =>
      serviceWeight * (1 - service(services[i])) + waitWeight * wait(waits[i]);
    let best = 0;
    for (let i = 1; i < heads.length; i++) {
      const ahead = score(i) - score(best);
      if (ahead > 0 || (ahead === 0 && heads[i].sequence < heads[best].sequence)) best = i;
    }
    return heads[best];
  }

  snapshot(): PlainState {
    return [...this.#byTenant].map(([tenant, { tokens, atUs }]) => [tenant, tokens, atUs]);
  }

  restore(state: PlainState): void {
    this.#byTenant.clear();
    // the state is what `snapshot` made
    for (const [tenant, tokens, atUs] of state as unknown as readonly [string, number, number][]) {
      this.#byTenant.set(tenant, { tokens, atUs });
    }
  }
}

function scaled(values: readonly number[]): (value: number) => number {
  const low = Math.min(...values);
  const high = Math.max(...values);
  return (value) => (high === low ? 0 : (value - low) / (high - low));
}
