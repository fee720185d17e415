/** What a preset of routing is asked, and what comes out. */

import { expect } from 'vitest';
import type { InstanceSnapshot, PolicyChoice, RequestView } from '../../../src/sim/control/policy.ts';
import type { RouterState } from '../../../src/sim/control/routerState.ts';
import { routingPolicies } from '../../../src/sim/control/routing/routing.ts';
import type { RoutingPolicy } from '../../../src/sim/control/routing/routingPolicy.ts';
import { request, router, world } from '../../sim/control/fixtures.ts';

export interface RoutingRow {
  readonly template: string;
  readonly formula: string;
  readonly candidates: readonly InstanceSnapshot[];
  readonly view?: RequestView;
  readonly state?: RouterState;
  /** Requests that went to an instance before, in this order. */
  readonly before?: readonly (readonly [RequestView, number])[];
  /** Requests that have ended: instance, prompt and output tokens, TTFT and whole time in µs, tenant. */
  readonly ended?: readonly (readonly [number, number, number, number, number, string])[];
  readonly scores: readonly number[] | null;
  /** Number of the instance. */
  readonly to: number;
}

export const priority = { score: 3, rank: 1, hints: { sheddable: false, dueUs: 0 } };

/** The policy after what went before. */
export function prepared(
  choice: PolicyChoice,
  {
    candidates,
    state = router(),
    before = [],
    ended = [],
  }: Pick<RoutingRow, 'candidates' | 'state' | 'before' | 'ended'>,
): RoutingPolicy {
  const policy = routingPolicies.make(choice, world());
  for (const [view, instance] of before) {
    const context = { request: view, priority, candidates, router: state };
    policy.choose(context);
    policy.routed?.(context, instance);
  }
  for (const [instance, promptTokens, outputTokens, ttftUs, e2eUs, tenantId] of ended) {
    const view = request({ number: 100 + instance, promptTokens, tenantId });
    policy.completed?.({ request: view, instance, completed: true, outputTokens, ttftUs, e2eUs, nowUs: 0 });
  }
  return policy;
}

export function expectRow(choice: PolicyChoice, row: RoutingRow): void {
  const { candidates, view = request(), state = router(), scores, to } = row;
  const made = prepared(choice, row).choose({ request: view, priority, candidates, router: state });
  if (scores === null) expect(made.scores).toBeNull();
  else {
    const given = Array.from(made.scores ?? []).slice(0, candidates.length);
    expect(given.length).toBe(scores.length);
    for (const [i, score] of scores.entries()) {
      if (score === -Infinity) expect(given[i], `instance ${i}`).toBe(-Infinity);
      else expect(given[i], `instance ${i}`).toBeCloseTo(score, 9);
    }
  }
  expect(candidates[made.index].instance).toBe(to);
}
