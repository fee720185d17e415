/** Claims of a summary about facts that are known. */

import { expect, test } from 'vitest';
import {
  defaultSummary,
  type RequestFact,
  type RunFacts,
  summarise,
} from '../../../src/policy/evolve/summary.ts';

/** Two tenants in turn. Every second pair of requests has a long prompt, and these are bad. */
const requests = Array.from({ length: 40 }, (_, i): RequestFact => {
  const isLong = i % 4 > 1;
  return {
    id: `r${i}`,
    tenant: i % 2 === 0 ? 'a' : 'b',
    sloClass: '',
    arrivalMs: i,
    promptTokens: isLong ? 9000 : 100,
    status: 'completed',
    ttftMs: 10,
    e2eMs: 20,
    tpotMs: 1,
    preemptions: 0,
    good: !isLong,
    routing: undefined,
  };
});

const facts: RunFacts = {
  caseId: 'case',
  policyId: 'policy',
  metrics: { completed: 40, cache_hit_rate: 0.3, slo_attainment: 0.5 },
  baseline: { cache_hit_rate: 0, slo_attainment: 0.4 },
  targets: {},
  routesByReports: false,
  requests,
  anomalies: [],
  regrets: [],
};

test('a pair of properties is told where it says more than each of the two', () => {
  const told = (all: readonly RequestFact[]): string =>
    summarise(
      { ...facts, requests: all },
      { ...defaultSummary, strategy: 'pattern_mining', maxTokens: 20_000 },
    );
  const alone = 'prompt of 8192 and more tok: 20 of 20 went badly';
  const pair = 'tenant a and class none';
  expect(told(requests)).toContain(alone);
  expect(told(requests)).not.toContain('tenant a and prompt of 8192 and more tok');
  expect(told(requests)).not.toContain(pair);
  // control: where the long prompts of one tenant alone are bad, the pair says more
  const ofOne = requests.map((each) => ({ ...each, good: each.good || each.tenant === 'b' }));
  expect(told(ofOne)).toContain('tenant a and prompt of 8192 and more tok: 10 of 10 went badly');
});

test('a change from a baseline of 0 is told without a share', () => {
  const summary = summarise(facts);
  expect(summary).toContain('cache hit rate 30.0% (baseline 0.0%)');
  expect(summary).toContain('SLO attainment 50.0% (baseline 40.0%, +25.0%)');
});
