/** Signals of the request of a decision, of its tenant, and of a request that has ended. */

import type { RequestOutcome, RequestPriority, RequestView } from '../../../sim/control/policy.ts';
import { SloPriorities } from '../../../sim/control/priority.ts';
import type { RouterState, TenantState } from '../../../sim/control/routerState.ts';
import { type FeatureTable, makers } from './feature.ts';

export interface RequestFacts {
  readonly request: RequestView;
  /** Priority from the stage before; null in the priority slot itself. */
  readonly priority: RequestPriority | null;
  readonly router: RouterState;
}

const classes = new SloPriorities();
const { int, float, bool, text } = makers<RequestFacts>();

function tenant({ router, request }: RequestFacts): TenantState {
  return router.tenant(request.tenantId);
}

export const requestFeatures: FeatureTable<RequestFacts> = {
  promptTokens: int('tokens', 'constant', 'length of the prompt', ({ request }) => request.promptTokens),
  promptBlocks: int('blocks', 'constant', 'full blocks of the prompt', ({ request }) => request.promptBlocks),
  waitedUs: int('µs', 'fresh', 'time since its arrival', ({ request, router }) =>
    Math.max(0, router.nowUs - request.arrivalUs),
  ),
  ttftTargetUs: int(
    'µs',
    'constant',
    'time to the first token that it asks for, 0 for none',
    ({ request }) => request.sloTargetUs,
  ),
  deadlineUs: int('µs', 'constant', 'when it is given up, 0 for never', ({ request }) => request.deadlineUs),
  classPriority: int(
    '',
    'constant',
    'urgency of its class: critical 4, standard 3, batch -1, sheddable -2, background -3',
    ({ request }) => classes.of(request.sloClass),
  ),
  priority: float(
    '',
    'fresh',
    'score of the priority policy; of its class in that slot itself',
    ({ request, priority }) => priority?.score ?? classes.of(request.sloClass),
  ),
  sloClass: text('name of its class, "" for none', ({ request }) => request.sloClass),
  tenantId: text('name of its tenant, "" for none', ({ request }) => request.tenantId),
  sessionId: text('name of its session, "" for none', ({ request }) => request.sessionId),
  adapter: text('name of its LoRA adapter, "" for none', ({ request }) => request.adapter),
  tenantRequests: int(
    'requests',
    'fresh',
    'arrivals of its tenant so far',
    (facts) => tenant(facts).requestCount,
  ),
  tenantActive: int(
    'requests',
    'fresh',
    'of its tenant, routed and not ended',
    (facts) => tenant(facts).activeRequests,
  ),
  tenantAdmitted: int('requests', 'fresh', 'of its tenant, admitted', (facts) => tenant(facts).admitted),
  tenantRejected: int('requests', 'fresh', 'of its tenant, rejected', (facts) => tenant(facts).rejected),
  tenantRate: float('1/s', 'fresh', 'recent arrivals of its tenant', (facts) => tenant(facts).recentRate),
  tenantBursting: bool(
    'fresh',
    'whether its tenant sends far more than usual now',
    (facts) => tenant(facts).burstDetected,
  ),
  tenantOutputTokens: int(
    'tokens',
    'fresh',
    'generated for its tenant so far',
    (facts) => tenant(facts).outputTokens,
  ),
};

// A request that has ended, for a program's `on_complete`.

const outcome = makers<RequestOutcome>();

export const outcomeFeatures: FeatureTable<RequestOutcome> = {
  nowUs: outcome.int('µs', 'fresh', 'simulated time', ({ nowUs }) => nowUs),
  instance: outcome.int('', 'constant', 'number of the instance where it ended', ({ instance }) => instance),
  completed: outcome.bool(
    'constant',
    'false for one that was lost or timed out',
    ({ completed }) => completed,
  ),
  promptTokens: outcome.int(
    'tokens',
    'constant',
    'length of its prompt',
    ({ request }) => request.promptTokens,
  ),
  outputTokens: outcome.int('tokens', 'constant', 'that it generated', ({ outputTokens }) => outputTokens),
  ttftUs: outcome.int('µs', 'constant', 'time to its first token, -1 for none', ({ ttftUs }) => ttftUs),
  e2eUs: outcome.int('µs', 'constant', 'time to its end', ({ e2eUs }) => e2eUs),
  ttftTargetUs: outcome.int(
    'µs',
    'constant',
    'what it asked for, 0 for none',
    ({ request }) => request.sloTargetUs,
  ),
  sloClass: outcome.text('name of its class, "" for none', ({ request }) => request.sloClass),
  tenantId: outcome.text('name of its tenant, "" for none', ({ request }) => request.tenantId),
};
