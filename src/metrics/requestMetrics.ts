/** The metrics of requests, of tenants and of the runtime's health. */

import {
  alone,
  type Metric,
  type MetricSample,
  metric,
  type ReadMetric,
  tier,
  type Watched,
} from './metric.ts';
import { OTHER_TENANTS, type TenantMeasures } from './requestMeasures.ts';

function byTenant(read: (tenant: TenantMeasures) => number): ReadMetric {
  return ({ requests }) =>
    [...requests.tenants].map(([tenant, measures]) => ({ labels: { tenant }, value: read(measures) }));
}

/** Bytes by tier and tenant; tenants beyond the bound are one, and so is one that has the name of these. */
function bytesOfTenants(watched: Watched): readonly MetricSample[] {
  const { manager, cache, tenantsMost } = watched;
  const all = [...watched.owners()];
  const named = all.filter(([tenant]) => tenant !== OTHER_TENANTS).slice(0, tenantsMost);
  return cache.tiers.flatMap(({ tier }, position) => {
    const samples = named.map(([tenant, owner]) => ({
      labels: { tier, tenant },
      value: manager.ownedBytes(owner, position),
    }));
    if (named.length === all.length) return samples;
    const known = samples.reduce((sum, { value }) => sum + value, 0);
    const value = Math.max(0, manager.usage(position).residentBytes - known);
    return [...samples, { labels: { tier, tenant: OTHER_TENANTS }, value }];
  });
}

/** Why a request ended, in vLLM's words; sequences without a scheduler end as they were ended. */
const reasons: Readonly<Record<string, string>> = {
  aborted: 'abort',
  cancelled: 'abort',
  capacity: 'length',
};

function endsByReason({ requests }: Watched): readonly MetricSample[] {
  const counts = new Map<string, number>(['stop', 'length', 'abort'].map((reason) => [reason, 0]));
  for (const [how, count] of requests.ended) {
    const reason = reasons[how] ?? how;
    counts.set(reason, (counts.get(reason) ?? 0) + count);
  }
  return [...counts].map(([finished_reason, value]) => ({ labels: { finished_reason }, value }));
}

export const requestMetrics: readonly Metric[] = [
  // Requests and steps.
  metric(
    'gauge',
    'vllm:num_requests_running',
    '{request}',
    [],
    'Requests in the batch of the scheduler; without one, sequences that are open.',
    (w) => alone(w.scheduler()?.running ?? w.manager.openSequences),
  ),
  metric(
    'gauge',
    'vllm:num_requests_waiting',
    '{request}',
    [],
    'Requests that wait: for the batch or, without a scheduler, for room.',
    (w) => alone(w.scheduler()?.waiting ?? w.waitingForRoom),
  ),
  metric(
    'counter',
    'vllm:num_preemptions_total',
    '{request}',
    [],
    'Requests that gave up their blocks to others, and came back later.',
    (w) => alone(w.manager.counters.preemptions),
  ),
  metric(
    'counter',
    'vllm:request_success_total',
    '{request}',
    ['finished_reason'],
    'Requests that ended, by how.',
    endsByReason,
  ),
  metric('counter', 'vllm:prompt_tokens_total', '{token}', [], 'Tokens of the prompts that came in.', (w) =>
    alone(w.requests.promptTokens),
  ),
  metric(
    'counter',
    'vllm:prompt_tokens_cached_total',
    '{token}',
    [],
    'Tokens of prompts whose KV was found and not computed.',
    (w) => alone(w.requests.cachedTokens),
  ),
  metric(
    'counter',
    'vllm:generation_tokens_total',
    '{token}',
    [],
    'Tokens generated; without a scheduler, steps of sequences.',
    (w) => alone(w.requests.tokens),
  ),
  metric(
    'histogram',
    'vllm:request_queue_time_seconds',
    's',
    [],
    'From when a request came in until it had its room, in seconds.',
    (w) => alone(w.requests.queueTime),
  ),
  metric(
    'histogram',
    'tierkv_request_load_time_seconds',
    's',
    [],
    'From when a request had its room until what lower tiers hold of it was in place, in seconds.',
    (w) => alone(w.requests.loadTime),
  ),
  metric(
    'histogram',
    'vllm:request_prefill_time_seconds',
    's',
    [],
    'From then until its prompt was computed, in seconds.',
    (w) => alone(w.requests.prefillTime),
  ),
  metric(
    'histogram',
    'vllm:time_to_first_token_seconds',
    's',
    [],
    'From when a request came in until its prompt was computed and its first token was there, in seconds.',
    (w) => alone(w.requests.timeToFirstToken),
  ),
  metric(
    'histogram',
    'vllm:inter_token_latency_seconds',
    's',
    [],
    'From one token of a request to its next, in seconds.',
    (w) => alone(w.requests.interTokenLatency),
  ),
  metric(
    'histogram',
    'vllm:request_decode_time_seconds',
    's',
    [],
    'From the first token of a request to its end, in seconds.',
    (w) => alone(w.requests.decodeTime),
  ),
  metric(
    'histogram',
    'vllm:e2e_request_latency_seconds',
    's',
    [],
    'From when a request came in until it ended, in seconds.',
    (w) => alone(w.requests.endToEnd),
  ),
  metric(
    'gauge',
    'tierkv_requests_waiting_for_room',
    '{request}',
    [],
    'Requests that wait for room in the fastest tier.',
    (w) => alone(w.waitingForRoom),
  ),
  metric(
    'counter',
    'vllm:kv_offload_allocation_failure_total',
    '1',
    [],
    'Times that blocks found no room beside what is held.',
    (w) => alone(w.manager.counters.refusedAllocations),
  ),
];

export const healthMetrics: readonly Metric[] = [
  // Tenants: by name up to a bound, the others as one.
  metric(
    'gauge',
    'tierkv_tenant_resident_bytes',
    'By',
    ['tier', 'tenant'],
    'Bytes that a tenant has in the tier.',
    bytesOfTenants,
  ),
  metric(
    'counter',
    'tierkv_tenant_requests_total',
    '{request}',
    ['tenant'],
    'Requests of a tenant.',
    byTenant((each) => each.requests),
  ),
  metric(
    'counter',
    'tierkv_tenant_prompt_tokens_total',
    '{token}',
    ['tenant'],
    'Tokens of the prompts of a tenant.',
    byTenant((each) => each.promptTokens),
  ),
  metric(
    'counter',
    'tierkv_tenant_cached_tokens_total',
    '{token}',
    ['tenant'],
    'Tokens of prompts of a tenant whose KV was found.',
    byTenant((each) => each.cachedTokens),
  ),
  metric(
    'counter',
    'tierkv_tenant_generated_tokens_total',
    '{token}',
    ['tenant'],
    'Tokens generated for a tenant.',
    byTenant((each) => each.tokens),
  ),

  // Health.
  metric(
    'gauge',
    'tierkv_sequences_open',
    '{sequence}',
    [],
    'Sequences that were opened and not ended.',
    (w) => alone(w.manager.openSequences),
  ),
  metric(
    'gauge',
    'tierkv_transfers_in_flight',
    '{block}',
    [],
    'Transfers that were issued and have not ended, seals and copies included.',
    (w) => alone(w.manager.jobsInFlight),
  ),
  metric(
    'gauge',
    'tierkv_transfers_overdue',
    '{block}',
    [],
    'Of these, transfers past their deadline, whose slots stay taken.',
    (w) => alone(w.manager.jobsOverdue),
  ),
  metric('counter', 'tierkv_devices_lost_total', '{device}', [], 'Devices that were lost.', (w) =>
    alone(w.devicesLost),
  ),
  metric(
    'gauge',
    'tierkv_device_present',
    '1',
    [],
    '1 while there is a device, 0 while another one is looked for.',
    (w) => alone(w.devicePresent ? 1 : 0),
  ),
  metric(
    'gauge',
    'tierkv_breaker_state',
    '1',
    tier,
    "Of the shared tier's server: 0 while it is asked, 1 while one call tries it, 2 while it is left out.",
    (w) => {
      const breaker = w.breaker();
      return breaker === undefined
        ? []
        : [{ labels: { tier: breaker.tier }, value: breakerStates.indexOf(breaker.state) }];
    },
  ),
  metric(
    'counter',
    'tierkv_breaker_openings_total',
    '{opening}',
    tier,
    'How often the breaker of the shared tier began to leave its server out.',
    (w) => {
      const breaker = w.breaker();
      return breaker === undefined ? [] : [{ labels: { tier: breaker.tier }, value: breaker.openings }];
    },
  ),
];

const breakerStates = ['closed', 'onTrial', 'open'] as const;
