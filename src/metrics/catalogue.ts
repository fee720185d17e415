/**
 * Every metric: its name, what it means, its labels, and how it is read. Exporters, the reference page and the dashboard of
 * Grafana go by this list. What vLLM has, in its meaning, has vLLM's name; in vLLM's own dashboards a sum over tiers gives
 * the figure that they know. A tier is named as everywhere else: `hbm`, `ddr`, `nvme`, ...
 */

import { type KVManager, outcomeNames, tierName } from '../runtime/index.ts';
import type { CacheMeasures, TierMeasures } from './cacheMeasures.ts';
import type { Histogram } from './histogram.ts';
import { OTHER_TENANTS, type RequestMeasures, type TenantMeasures } from './requestMeasures.ts';

/** What the metrics are read of. */
export interface Watched {
  readonly manager: KVManager;
  readonly cache: CacheMeasures;
  readonly requests: RequestMeasures;
  /** Tokens of a full block. */
  readonly blockTokens: number;
  /** Tenants that are told apart. */
  readonly tenantsMost: number;
  /** The scheduler's queues; undefined without one. */
  scheduler(): { readonly running: number; readonly waiting: number } | undefined;
  /** Health of the runtime as it is now. */
  health(): {
    readonly devicesLost: number;
    readonly devicePresent: boolean;
    readonly waitingForRoom: number;
  };
  /** Owners by the names of their tenants. */
  owners(): ReadonlyMap<string, number>;
}

export interface Sample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number | Histogram;
}

export type MetricKind = 'counter' | 'gauge' | 'histogram';

export interface Metric {
  /** As Prometheus has it. */
  readonly name: string;
  readonly kind: MetricKind;
  /** One sentence, with its unit. */
  readonly help: string;
  /** Of each sample, beside the labels of the exporter. */
  readonly labels: readonly string[];
  /** As OpenTelemetry has it: `s`, `By`, `1`, `{block}`. */
  readonly unit: string;
  read(watched: Watched): readonly Sample[];
}

type Read = (watched: Watched) => readonly Sample[];

const alone = (value: number | Histogram): readonly Sample[] => [{ labels: {}, value }];

/** A sample a tier. */
function byTier(read: (tier: TierMeasures, position: number, watched: Watched) => number | Histogram): Read {
  return (watched) =>
    watched.cache.tiers.map((tier, position) => ({
      labels: { tier: tier.tier },
      value: read(tier, position, watched),
    }));
}

/** A sample a tier but the fastest. */
function byLowerTier(read: Parameters<typeof byTier>[0]): Read {
  return (watched) => byTier(read)(watched).slice(1);
}

/** Samples by tier and by how a transfer ended otherwise than well. */
function byReason(read: (tier: TierMeasures) => Float64Array): Read {
  return ({ cache }) =>
    cache.tiers
      .slice(1)
      .flatMap((tier) =>
        outcomeNames.flatMap((reason, outcome) =>
          outcome === 0 ? [] : [{ labels: { tier: tier.tier, reason }, value: read(tier)[outcome] }],
        ),
      );
}

function byTenant(read: (tenant: TenantMeasures) => number): Read {
  return ({ requests }) =>
    [...requests.tenants].map(([tenant, measures]) => ({ labels: { tenant }, value: read(measures) }));
}

/** Bytes by tier and tenant; tenants beyond the bound are one. */
function bytesOfTenants(watched: Watched): readonly Sample[] {
  const { manager, cache, tenantsMost } = watched;
  const named = [...watched.owners()];
  return cache.tiers.flatMap(({ tier }, position) => {
    const samples = named.slice(0, tenantsMost).map(([tenant, owner]) => ({
      labels: { tier, tenant },
      value: manager.ownedBytes(owner, position),
    }));
    if (named.length <= tenantsMost) return samples;
    const known = samples.reduce((sum, { value }) => sum + value, 0);
    const value = Math.max(0, manager.usage(position).residentBytes - known);
    return [...samples, { labels: { tier, tenant: OTHER_TENANTS }, value }];
  });
}

const linkSamples = (read: (link: CacheMeasures['links'][number], nowUs: number) => number): Read => {
  return ({ cache, manager }) =>
    cache.links.map((link) => ({
      labels: { tier: cache.tiers[link.to].tier, from: cache.tiers[link.from].tier },
      value: read(link, manager.nowUs),
    }));
};

const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);
const below = ({ cache }: Watched, read: (tier: TierMeasures) => number): number =>
  sum(cache.tiers.slice(1).map(read));
const asked = ({ cache }: Watched): number =>
  sum(cache.tiers.map((tier) => tier.hitBlocks)) + cache.missBlocks;

/** Why a request ended, in vLLM's words; sequences without a scheduler end as they were ended. */
const reasons: Readonly<Record<string, string>> = {
  aborted: 'abort',
  cancelled: 'abort',
  capacity: 'length',
};

function endsByReason({ requests }: Watched): readonly Sample[] {
  const counts = new Map<string, number>(['stop', 'length', 'abort'].map((reason) => [reason, 0]));
  for (const [how, count] of requests.ended) {
    const reason = reasons[how] ?? how;
    counts.set(reason, (counts.get(reason) ?? 0) + count);
  }
  return [...counts].map(([finished_reason, value]) => ({ labels: { finished_reason }, value }));
}

function metric(
  kind: MetricKind,
  name: string,
  unit: string,
  labels: readonly string[],
  help: string,
  read: Read,
): Metric {
  return { name, kind, help, labels, unit, read };
}

const tier = ['tier'];

export const metrics: readonly Metric[] = [
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
    (w) => alone(w.scheduler()?.waiting ?? w.health().waitingForRoom),
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
    (w) => alone(w.health().waitingForRoom),
  ),
  metric(
    'counter',
    'vllm:kv_offload_allocation_failure_total',
    '1',
    [],
    'Times that blocks found no room beside what is held.',
    (w) => alone(w.manager.counters.refusedAllocations),
  ),

  // What is found, in tokens and in blocks.
  metric(
    'counter',
    'vllm:prefix_cache_queries_total',
    '{token}',
    [],
    'Tokens of full blocks that requests asked for.',
    (w) => alone(asked(w) * w.blockTokens),
  ),
  metric(
    'counter',
    'vllm:prefix_cache_hits_total',
    '{token}',
    [],
    'Of these, tokens found in the fastest tier.',
    (w) => alone(w.cache.tiers[0].hitTokens),
  ),
  metric(
    'counter',
    'vllm:external_prefix_cache_queries_total',
    '{token}',
    [],
    'Tokens of full blocks that the fastest tier did not have.',
    (w) => alone((asked(w) - w.cache.tiers[0].hitBlocks) * w.blockTokens),
  ),
  metric(
    'counter',
    'vllm:external_prefix_cache_hits_total',
    '{token}',
    [],
    'Of these, tokens found in a lower tier.',
    (w) => alone(below(w, (each) => each.hitTokens)),
  ),
  metric('counter', 'tierkv_asked_blocks_total', '{block}', [], 'Blocks that requests asked for.', (w) =>
    alone(asked(w)),
  ),
  metric('counter', 'tierkv_missed_blocks_total', '{block}', [], 'Of these, blocks that no tier had.', (w) =>
    alone(w.cache.missBlocks),
  ),
  metric('counter', 'tierkv_missed_tokens_total', '{token}', [], 'Tokens of blocks that no tier had.', (w) =>
    alone(w.cache.missBlocks * w.blockTokens),
  ),
  metric(
    'counter',
    'tierkv_hit_blocks_total',
    '{block}',
    tier,
    'Blocks found, by the fastest tier that had them.',
    byTier((each) => each.hitBlocks),
  ),
  metric(
    'counter',
    'tierkv_hit_tokens_total',
    '{token}',
    tier,
    'Tokens of blocks found, by the fastest tier that had them.',
    byTier((each) => each.hitTokens),
  ),
  metric(
    'counter',
    'tierkv_joined_blocks_total',
    '{block}',
    [],
    'Blocks found while they were still on their way.',
    (w) => alone(w.manager.counters.joined),
  ),
  metric(
    'counter',
    'tierkv_prefix_choice_blocks_total',
    '{block}',
    ['choice'],
    'Blocks that a lower tier had, by what was chosen: load them, or compute them again because that was sooner.',
    (w) => [
      { labels: { choice: 'load' }, value: w.cache.choseLoad },
      { labels: { choice: 'recompute' }, value: w.cache.choseRecompute },
    ],
  ),

  // What moves.
  metric(
    'counter',
    'vllm:kv_offload_load_bytes_total',
    'By',
    tier,
    'Bytes brought up, by the tier that they came from.',
    byLowerTier((each) => each.loadBytes),
  ),
  metric(
    'counter',
    'vllm:kv_offload_load_time_total',
    's',
    tier,
    'Seconds that loads took, one by one, by the tier that they came from.',
    byLowerTier((each) => each.loadSeconds.sum),
  ),
  metric(
    'counter',
    'tierkv_load_blocks_total',
    '{block}',
    tier,
    'Blocks brought up, by the tier that they came from.',
    byLowerTier((each) => each.loadBlocks),
  ),
  metric(
    'counter',
    'tierkv_load_tokens_total',
    '{token}',
    tier,
    'Tokens of blocks brought up, by the tier that they came from.',
    byLowerTier((each) => each.loadTokens),
  ),
  metric(
    'histogram',
    'tierkv_load_duration_seconds',
    's',
    tier,
    'How long a load took from its issue to its verified end, by the tier that it came from, in seconds.',
    byLowerTier((each) => each.loadSeconds),
  ),
  metric(
    'counter',
    'tierkv_load_failures_total',
    '{block}',
    ['tier', 'reason'],
    'Loads that brought no block, by the tier that they came from and by why.',
    byReason((each) => each.loadFailures),
  ),
  metric(
    'counter',
    'vllm:kv_offload_store_bytes_total',
    'By',
    tier,
    'Bytes sent down, by the tier that took them.',
    byLowerTier((each) => each.storeBytes),
  ),
  metric(
    'counter',
    'vllm:kv_offload_store_time_total',
    's',
    tier,
    'Seconds that stores took, one by one, by the tier that took the block.',
    byLowerTier((each) => each.storeSeconds.sum),
  ),
  metric(
    'counter',
    'tierkv_store_blocks_total',
    '{block}',
    tier,
    'Blocks sent down, by the tier that took them.',
    byLowerTier((each) => each.storeBlocks),
  ),
  metric(
    'counter',
    'tierkv_store_tokens_total',
    '{token}',
    tier,
    'Tokens of blocks sent down, by the tier that took them.',
    byLowerTier((each) => each.storeTokens),
  ),
  metric(
    'histogram',
    'tierkv_store_duration_seconds',
    's',
    tier,
    'How long a store took from its issue to its end, by the tier that took the block, in seconds.',
    byLowerTier((each) => each.storeSeconds),
  ),
  metric(
    'counter',
    'tierkv_store_failures_total',
    '{block}',
    ['tier', 'reason'],
    'Stores that did not keep their block, by the tier that was to take it and by why.',
    byReason((each) => each.storeFailures),
  ),
  metric(
    'counter',
    'vllm:kv_offload_stores_skipped_total',
    '{block}',
    ['reason'],
    'Blocks that were dropped instead of sent down: too much of their tier was on its way already, or the write budget did not pay for them.',
    (w) => [
      { labels: { reason: 'behind' }, value: w.manager.counters.demotionsSkipped },
      { labels: { reason: 'budget' }, value: w.manager.counters.writesDeclined },
    ],
  ),
  metric(
    'counter',
    'tierkv_load_deadline_misses_total',
    '{block}',
    tier,
    'Loads that were given up at their deadline, by the tier that they came from.',
    byLowerTier((each) => each.loadsLate),
  ),
  metric(
    'counter',
    'tierkv_store_deadline_misses_total',
    '{block}',
    tier,
    'Stores that were given up at their deadline, by the tier that was to take the block.',
    byLowerTier((each) => each.storesLate),
  ),
  metric(
    'gauge',
    'tierkv_link_transfers',
    '{block}',
    ['tier', 'from'],
    'Transfers that the driver has, by the tier that they go to and the tier that they come from.',
    linkSamples((link) => link.inFlight),
  ),
  metric(
    'counter',
    'tierkv_link_bytes_total',
    'By',
    ['tier', 'from'],
    'Bytes that a link carried, by the tier that they went to and the tier that they came from.',
    linkSamples((link) => link.bytes),
  ),
  metric(
    'counter',
    'tierkv_link_busy_seconds_total',
    's',
    ['tier', 'from'],
    'Seconds in which a link had something to carry.',
    linkSamples((link, nowUs) => link.busyUs(nowUs) / 1e6),
  ),

  // What stays, for how long, and what comes back.
  metric(
    'gauge',
    'vllm:kv_cache_usage_perc',
    '1',
    [],
    'Share of the fastest tier that is in use, from 0 to 1.',
    (w) => {
      const { residentBytes, capacityBytes } = w.manager.usage(0);
      return alone(residentBytes / capacityBytes);
    },
  ),
  metric(
    'gauge',
    'tierkv_tier_capacity_bytes',
    'By',
    tier,
    'Size of the tier in bytes.',
    byTier((_, position, w) => w.manager.usage(position).capacityBytes),
  ),
  metric(
    'gauge',
    'tierkv_tier_resident_bytes',
    'By',
    tier,
    'Bytes in use: held, cached, or on their way in.',
    byTier((_, position, w) => w.manager.usage(position).residentBytes),
  ),
  metric(
    'gauge',
    'tierkv_tier_held_bytes',
    'By',
    tier,
    'Of these, bytes that sequences hold.',
    byTier((_, position, w) => w.manager.usage(position).heldBytes),
  ),
  metric(
    'gauge',
    'tierkv_tier_cached_bytes',
    'By',
    tier,
    'Of these, bytes that can be evicted now.',
    byTier((_, position, w) => w.manager.usage(position).cachedBytes),
  ),
  metric(
    'gauge',
    'tierkv_tier_leaving_bytes',
    'By',
    tier,
    'Bytes of blocks that were evicted and keep their slots until they have arrived below.',
    byTier((_, position, w) => w.manager.usage(position).leavingBytes),
  ),
  metric(
    'gauge',
    'tierkv_tier_blocks',
    '{block}',
    tier,
    'Blocks that lookups find there.',
    byTier((_, position, w) => w.manager.usage(position).slots.ready),
  ),
  metric(
    'counter',
    'tierkv_evicted_blocks_total',
    '{block}',
    tier,
    'Blocks that the eviction policy chose to leave the tier.',
    byTier((each) => each.evictedBlocks),
  ),
  metric(
    'counter',
    'tierkv_evicted_tokens_total',
    '{token}',
    tier,
    'Tokens of blocks that the eviction policy chose to leave the tier.',
    byTier((each) => each.evictedTokens),
  ),
  metric(
    'counter',
    'tierkv_dropped_blocks_total',
    '{block}',
    tier,
    'Of the evicted blocks, those whose last copy it was.',
    byTier((each) => each.droppedBlocks),
  ),
  metric(
    'counter',
    'tierkv_returned_blocks_total',
    '{block}',
    tier,
    'Dropped blocks that a request asked for again, by the tier that dropped them: what came back too early.',
    byTier((each) => each.returnedBlocks),
  ),
  metric(
    'histogram',
    'tierkv_returned_after_seconds',
    's',
    tier,
    'How long after it was dropped a block was asked for again, in seconds.',
    byTier((each) => each.returnedAfterSeconds),
  ),
  metric(
    'histogram',
    'vllm:kv_block_lifetime_seconds',
    's',
    tier,
    'How long lookups found a block in the tier, in seconds.',
    byTier((each) => each.residenceSeconds),
  ),
  metric(
    'histogram',
    'vllm:kv_block_idle_before_evict_seconds',
    's',
    tier,
    'How long a block had not been used when it was evicted from the tier, in seconds.',
    byTier((each) => each.idleSeconds),
  ),
  metric(
    'histogram',
    'vllm:kv_block_reuse_gap_seconds',
    's',
    tier,
    'From one use of a block to the next, by the tier in which that found it, in seconds.',
    byTier((each) => each.reuseGapSeconds),
  ),
  metric(
    'counter',
    'tierkv_thrashed_blocks_total',
    '{block}',
    [],
    'Blocks that came back up shortly after they were sent down.',
    (w) => alone(w.manager.counters.thrashed),
  ),
  metric(
    'counter',
    'tierkv_adopted_blocks_total',
    '{block}',
    [],
    'Blocks that a tier held since an earlier run.',
    (w) => alone(w.manager.counters.adopted),
  ),
  metric(
    'counter',
    'tierkv_lost_blocks_total',
    '{block}',
    [],
    'Blocks whose last copy went with a lost device or disk.',
    (w) => alone(w.manager.counters.lost),
  ),
  metric(
    'counter',
    'tierkv_diverged_blocks_total',
    '{block}',
    [],
    'Blocks that were computed twice with different bytes.',
    (w) => alone(w.manager.counters.diverged),
  ),

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
    alone(w.health().devicesLost),
  ),
  metric(
    'gauge',
    'tierkv_device_present',
    '1',
    [],
    '1 while there is a device, 0 while another one is looked for.',
    (w) => alone(w.health().devicePresent ? 1 : 0),
  ),
];

/** @returns names of the tiers of a manager, fastest first */
export function tierNamesOf(manager: KVManager): readonly string[] {
  return manager.tiers.map((each) => tierName(each));
}
