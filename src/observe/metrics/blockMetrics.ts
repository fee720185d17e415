/** The metrics of blocks: what is found, what moves, what stays, what comes back, by tier. */

import { outcomeNames } from '../../runtime/index.ts';
import type { TierUsage } from '../../runtime/manager/lookup.ts';
import type { CacheMeasures, TierMeasures } from './cacheMeasures.ts';
import {
  type Metric,
  metric,
  perTier,
  type ReadMetric,
  single,
  type TierReader,
  type Watched,
} from './metric.ts';

/** A count of the cache. */
const count = (name: string, help: string, read: (of: Watched) => number, unit = '{block}'): Metric =>
  single('counter', name, unit, help, read);

const countByTier = (name: string, help: string, read: TierReader, unit = '{block}'): Metric =>
  perTier('counter', name, unit, help, read);
const countByLowerTier = (name: string, help: string, read: TierReader, unit = '{block}'): Metric =>
  perTier('counter', name, unit, help, read, 1);
const timesByTier = (name: string, help: string, read: TierReader): Metric =>
  perTier('histogram', name, 's', help, read);
const timesByLowerTier = (name: string, help: string, read: TierReader): Metric =>
  perTier('histogram', name, 's', help, read, 1);

/** How a tier is used now. */
const usageByTier = (name: string, help: string, read: (usage: TierUsage) => number, unit = 'By'): Metric =>
  perTier('gauge', name, unit, help, (_, position, w) => read(w.manager.inspect.usage(position)));

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
      value: read(link, manager.inspect.nowUs),
    }));
};

const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);
const below = ({ cache }: Watched, read: (tier: TierMeasures) => number): number =>
  sum(cache.tiers.slice(1).map(read));
const asked = ({ cache }: Watched): number =>
  sum(cache.tiers.map((tier) => tier.hitBlocks)) + cache.missBlocks;

export const blockMetrics: readonly Metric[] = [
  // Lookups: tokens and blocks that were found.
  count(
    'vllm:prefix_cache_queries_total',
    'Tokens of full blocks that requests asked for.',
    (w) => asked(w) * w.blockTokens,
    '{token}',
  ),
  count(
    'vllm:prefix_cache_hits_total',
    'Of these, tokens found in the fastest tier.',
    (w) => w.cache.tiers[0].hitTokens,
    '{token}',
  ),
  count(
    'vllm:external_prefix_cache_queries_total',
    'Tokens of full blocks that the fastest tier did not have.',
    (w) => (asked(w) - w.cache.tiers[0].hitBlocks) * w.blockTokens,
    '{token}',
  ),
  count(
    'vllm:external_prefix_cache_hits_total',
    'Of these, tokens found in a lower tier.',
    (w) => below(w, (each) => each.hitTokens),
    '{token}',
  ),
  count('tierkv_asked_blocks_total', 'Blocks that requests asked for.', (w) => asked(w)),
  count('tierkv_missed_blocks_total', 'Of these, blocks that no tier had.', (w) => w.cache.missBlocks),
  count(
    'tierkv_missed_tokens_total',
    'Tokens of blocks that no tier had.',
    (w) => w.cache.missBlocks * w.blockTokens,
    '{token}',
  ),
  countByTier(
    'tierkv_hit_blocks_total',
    'Blocks found, by the fastest tier that had them.',
    (each) => each.hitBlocks,
  ),
  countByTier(
    'tierkv_hit_tokens_total',
    'Tokens of blocks found, by the fastest tier that had them.',
    (each) => each.hitTokens,
    '{token}',
  ),
  count(
    'tierkv_joined_blocks_total',
    'Blocks found while they were still on their way.',
    (w) => w.manager.inspect.counters.joined,
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

  // Transfers.
  countByLowerTier(
    'vllm:kv_offload_load_bytes_total',
    'Bytes brought up, by the tier that they came from.',
    (each) => each.loadBytes,
    'By',
  ),
  countByLowerTier(
    'vllm:kv_offload_load_time_total',
    'Seconds that loads took, one by one, by the tier that they came from.',
    (each) => each.loadSeconds.sum,
    's',
  ),
  countByLowerTier(
    'tierkv_load_blocks_total',
    'Blocks brought up, by the tier that they came from.',
    (each) => each.loadBlocks,
  ),
  countByLowerTier(
    'tierkv_load_tokens_total',
    'Tokens of blocks brought up, by the tier that they came from.',
    (each) => each.loadTokens,
    '{token}',
  ),
  timesByLowerTier(
    'tierkv_load_duration_seconds',
    'How long a load took from its issue to its verified end, by the tier that it came from, in seconds.',
    (each) => each.loadSeconds,
  ),
  metric(
    'counter',
    'tierkv_load_failures_total',
    '{block}',
    ['tier', 'reason'],
    'Loads that brought no block, by the tier that they came from and by why.',
    byReason((each) => each.loadFailures),
  ),
  countByLowerTier(
    'vllm:kv_offload_store_bytes_total',
    'Bytes sent down, by the tier that took them.',
    (each) => each.storeBytes,
    'By',
  ),
  countByLowerTier(
    'vllm:kv_offload_store_time_total',
    'Seconds that stores took, one by one, by the tier that took the block.',
    (each) => each.storeSeconds.sum,
    's',
  ),
  countByLowerTier(
    'tierkv_store_blocks_total',
    'Blocks sent down, by the tier that took them.',
    (each) => each.storeBlocks,
  ),
  countByLowerTier(
    'tierkv_store_tokens_total',
    'Tokens of blocks sent down, by the tier that took them.',
    (each) => each.storeTokens,
    '{token}',
  ),
  timesByLowerTier(
    'tierkv_store_duration_seconds',
    'How long a store took from its issue to its end, by the tier that took the block, in seconds.',
    (each) => each.storeSeconds,
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
      { labels: { reason: 'behind' }, value: w.manager.inspect.counters.demotionsSkipped },
      { labels: { reason: 'budget' }, value: w.manager.inspect.counters.writesDeclined },
    ],
  ),
  countByLowerTier(
    'tierkv_load_deadline_misses_total',
    'Loads that were given up at their deadline, by the tier that they came from.',
    (each) => each.loadsLate,
  ),
  countByLowerTier(
    'tierkv_store_deadline_misses_total',
    'Stores that were given up at their deadline, by the tier that was to take the block.',
    (each) => each.storesLate,
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

  // Residence: blocks that stay, for how long, and blocks that come back.
  metric(
    'gauge',
    'vllm:cache_config_info',
    '1',
    ['block_size', 'num_gpu_blocks'],
    'Always 1: its labels have the tokens of a block and the blocks of the fastest tier.',
    ({ manager, blockTokens, blockBytes }) => {
      const blocks = Math.floor(manager.inspect.usage(0).sizeBytes / blockBytes);
      return [{ labels: { block_size: String(blockTokens), num_gpu_blocks: String(blocks) }, value: 1 }];
    },
  ),
  single(
    'gauge',
    'vllm:kv_cache_usage_perc',
    '1',
    'Share of the fastest tier that is in use, from 0 to 1.',
    (w) => {
      const { residentBytes, sizeBytes } = w.manager.inspect.usage(0);
      return residentBytes / sizeBytes;
    },
  ),
  usageByTier('tierkv_tier_capacity_bytes', 'Size of the tier in bytes.', (usage) => usage.capacityBytes),
  usageByTier(
    'tierkv_tier_resident_bytes',
    'Bytes in use: held, cached, or on their way in.',
    (usage) => usage.residentBytes,
  ),
  usageByTier('tierkv_tier_held_bytes', 'Of these, bytes that sequences hold.', (usage) => usage.heldBytes),
  usageByTier(
    'tierkv_tier_cached_bytes',
    'Of these, bytes that can be evicted now.',
    (usage) => usage.cachedBytes,
  ),
  usageByTier(
    'tierkv_tier_leaving_bytes',
    'Bytes of blocks that were evicted and keep their slots until they have arrived below.',
    (usage) => usage.leavingBytes,
  ),
  usageByTier(
    'tierkv_tier_blocks',
    'Blocks that lookups find there.',
    (usage) => usage.slots.ready,
    '{block}',
  ),
  countByTier(
    'tierkv_evicted_blocks_total',
    'Blocks that the eviction policy chose to leave the tier.',
    (each) => each.evictedBlocks,
  ),
  countByTier(
    'tierkv_evicted_tokens_total',
    'Tokens of blocks that the eviction policy chose to leave the tier.',
    (each) => each.evictedTokens,
    '{token}',
  ),
  countByTier(
    'tierkv_dropped_blocks_total',
    'Of the evicted blocks, those whose last copy it was.',
    (each) => each.droppedBlocks,
  ),
  countByTier(
    'tierkv_returned_blocks_total',
    'Dropped blocks that a request asked for again, by the tier that dropped them: what came back too early.',
    (each) => each.returnedBlocks,
  ),
  timesByTier(
    'tierkv_returned_after_seconds',
    'How long after it was dropped a block was asked for again, in seconds.',
    (each) => each.returnedAfterSeconds,
  ),
  timesByTier(
    'vllm:kv_block_lifetime_seconds',
    'How long lookups found a block in the tier, in seconds.',
    (each) => each.residenceSeconds,
  ),
  timesByTier(
    'vllm:kv_block_idle_before_evict_seconds',
    'How long a block had not been used when it was evicted from the tier, in seconds.',
    (each) => each.idleSeconds,
  ),
  timesByTier(
    'vllm:kv_block_reuse_gap_seconds',
    'From one use of a block to the next, by the tier in which that found it, in seconds.',
    (each) => each.reuseGapSeconds,
  ),
  count(
    'tierkv_thrashed_blocks_total',
    'Blocks that came back up shortly after they were sent down.',
    (w) => w.manager.inspect.counters.thrashed,
  ),
  count(
    'tierkv_adopted_blocks_total',
    'Blocks that a tier held since an earlier run.',
    (w) => w.manager.inspect.counters.adopted,
  ),
  count(
    'tierkv_lost_blocks_total',
    'Blocks whose last copy went with a lost device or disk.',
    (w) => w.manager.inspect.counters.lost,
  ),
  count(
    'tierkv_diverged_blocks_total',
    'Blocks that were computed twice with different bytes.',
    (w) => w.manager.inspect.counters.diverged,
  ),
];
