/** The metrics of requests, of tenants and of the runtime's health. */

import { type Metric, type MetricSample, metric, single, tier, type Watched } from './metric.ts';
import { OTHER_TENANTS, type TenantMeasures } from './requestMeasures.ts';

/** A count of a runtime. */
const count = (name: string, help: string, read: (of: Watched) => number, unit = '{request}'): Metric =>
  single('counter', name, unit, help, read);

function countByTenant(
  name: string,
  help: string,
  read: (tenant: TenantMeasures) => number,
  unit = '{request}',
): Metric {
  return metric('counter', name, unit, ['tenant'], help, ({ requests }) =>
    [...requests.tenants].map(([tenant, measures]) => ({ labels: { tenant }, value: read(measures) })),
  );
}

/** Bytes by tier and tenant; tenants beyond the bound are one, and so is one that has the name of these. */
function bytesOfTenants(watched: Watched): readonly MetricSample[] {
  const { manager, cache, tenantsMost } = watched;
  const all = [...watched.owners()];
  const named = all.filter(([tenant]) => tenant !== OTHER_TENANTS).slice(0, tenantsMost);
  return cache.tiers.flatMap(({ tier }, position) => {
    const samples = named.map(([tenant, owner]) => ({
      labels: { tier, tenant },
      value: manager.inspect.ownedBytes(owner, position),
    }));
    if (named.length === all.length) return samples;
    const known = samples.reduce((sum, { value }) => sum + value, 0);
    const value = Math.max(0, manager.inspect.usage(position).residentBytes - known);
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
  single(
    'gauge',
    'vllm:num_requests_running',
    '{request}',
    'Requests in the batch of the scheduler; without one, sequences that are open.',
    (w) => w.scheduler()?.running ?? w.manager.inspect.openSequences,
  ),
  single(
    'gauge',
    'vllm:num_requests_waiting',
    '{request}',
    'Requests that wait: for the batch or, without a scheduler, for room.',
    (w) => w.scheduler()?.waiting ?? w.waitingForRoom,
  ),
  count(
    'vllm:num_preemptions_total',
    'Requests that gave up their blocks to others, and came back later.',
    (w) => w.manager.inspect.counters.preemptions,
  ),
  metric(
    'counter',
    'vllm:request_success_total',
    '{request}',
    ['finished_reason'],
    'Requests that ended, by how.',
    endsByReason,
  ),
  count(
    'vllm:prompt_tokens_total',
    'Tokens of the prompts that came in.',
    (w) => w.requests.promptTokens,
    '{token}',
  ),
  count(
    'vllm:prompt_tokens_cached_total',
    'Tokens of prompts whose KV was found and not computed.',
    (w) => w.requests.cachedTokens,
    '{token}',
  ),
  count(
    'vllm:generation_tokens_total',
    'Tokens generated; without a scheduler, steps of sequences.',
    (w) => w.requests.tokens,
    '{token}',
  ),
  single(
    'histogram',
    'vllm:request_queue_time_seconds',
    's',
    'From when a request came in until it had its room, in seconds.',
    (w) => w.requests.queueTime,
  ),
  single(
    'histogram',
    'tierkv_request_load_time_seconds',
    's',
    'From when a request had its room until what lower tiers hold of it was in place, in seconds.',
    (w) => w.requests.loadTime,
  ),
  single(
    'histogram',
    'vllm:request_prefill_time_seconds',
    's',
    'From then until its prompt was computed, in seconds.',
    (w) => w.requests.prefillTime,
  ),
  single(
    'histogram',
    'vllm:time_to_first_token_seconds',
    's',
    'From when a request came in until its prompt was computed and its first token was there, in seconds.',
    (w) => w.requests.timeToFirstToken,
  ),
  single(
    'histogram',
    'vllm:inter_token_latency_seconds',
    's',
    'From one token of a request to its next, in seconds.',
    (w) => w.requests.interTokenLatency,
  ),
  single(
    'histogram',
    'vllm:request_decode_time_seconds',
    's',
    'From the first token of a request to its end, in seconds.',
    (w) => w.requests.decodeTime,
  ),
  single(
    'histogram',
    'vllm:e2e_request_latency_seconds',
    's',
    'From when a request came in until it ended, in seconds.',
    (w) => w.requests.endToEnd,
  ),
  single(
    'histogram',
    'vllm:request_prompt_tokens',
    '{token}',
    'Tokens of the prompts of requests that ended.',
    (w) => w.requests.promptLength,
  ),
  single(
    'histogram',
    'vllm:request_generation_tokens',
    '{token}',
    'Tokens generated for requests that ended.',
    (w) => w.requests.answerLength,
  ),
  single(
    'gauge',
    'tierkv_requests_waiting_for_room',
    '{request}',
    'Requests that wait for room in the fastest tier.',
    (w) => w.waitingForRoom,
  ),
  count(
    'vllm:kv_offload_allocation_failure_total',
    'Times that blocks found no room beside what is held.',
    (w) => w.manager.inspect.counters.refusedAllocations,
    '1',
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
  countByTenant('tierkv_tenant_requests_total', 'Requests of a tenant.', (each) => each.requests),
  countByTenant(
    'tierkv_tenant_prompt_tokens_total',
    'Tokens of the prompts of a tenant.',
    (each) => each.promptTokens,
    '{token}',
  ),
  countByTenant(
    'tierkv_tenant_cached_tokens_total',
    'Tokens of prompts of a tenant whose KV was found.',
    (each) => each.cachedTokens,
    '{token}',
  ),
  countByTenant(
    'tierkv_tenant_generated_tokens_total',
    'Tokens generated for a tenant.',
    (each) => each.tokens,
    '{token}',
  ),

  // Health.
  single(
    'gauge',
    'tierkv_sequences_open',
    '{sequence}',
    'Sequences that were opened and not ended.',
    (w) => w.manager.inspect.openSequences,
  ),
  single(
    'gauge',
    'tierkv_transfers_in_flight',
    '{block}',
    'Transfers that were issued and have not ended, seals and copies included.',
    (w) => w.manager.inspect.jobsInFlight,
  ),
  single(
    'gauge',
    'tierkv_transfers_overdue',
    '{block}',
    'Of these, transfers past their deadline, whose slots stay taken.',
    (w) => w.manager.inspect.jobsOverdue,
  ),
  count('tierkv_devices_lost_total', 'Devices that were lost.', (w) => w.devicesLost, '{device}'),
  single(
    'gauge',
    'tierkv_device_present',
    '1',
    '1 while there is a device, 0 while another one is looked for.',
    (w) => (w.devicePresent ? 1 : 0),
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
