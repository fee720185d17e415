/** The metrics of blocks: what is found, what moves, what stays, what comes back, by tier. */

import { outcomeNames } from '../runtime/index.ts';
import type { CacheMeasures, TierMeasures } from './cacheMeasures.ts';
import {
  alone,
  byLowerTier,
  byTier,
  type Metric,
  metric,
  type ReadMetric,
  tier,
  type Watched,
} from './metric.ts';

/** Samples by tier and by how a transfer ended otherwise than well. */
function byReason(read: (tier: TierMeasures) => Float64Array): ReadMetric {
  return ({ cache }) =>
    cache.tiers
      .slice(1)
      .flatMap((tier) =>
        outcomeNames.flatMap((reason, outcome) =>
          outcome === 0 ? [] : [{ labels: { tier: tier.tier, reason }, value: read(tier)[outcome] }],
        ),
      );
}

const linkSamples = (read: (link: CacheMeasures['links'][number], nowUs: number) => number): ReadMetric => {
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

export const blockMetrics: readonly Metric[] = [
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
];
