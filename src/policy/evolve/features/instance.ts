/** Signals of one instance that could take the request. */

import { kvUtilization } from '../../../sim/control/admission.ts';
import { effectiveLoad, estimatedWaitUs, type InstanceSnapshot } from '../../../sim/control/policy.ts';
import type { RoutingContext } from '../../../sim/control/routing/routingPolicy.ts';
import { type FeatureTable, makers } from './feature.ts';

/** Memories of the router that score every candidate at once. */
const memoryNames = ['prefix-affinity', 'session-affinity', 'no-hit-lru'] as const;
export type MemoryName = (typeof memoryNames)[number];

export interface InstanceFacts {
  readonly instance: InstanceSnapshot;
  readonly context: RoutingContext;
  /** The memory's score of the instance. */
  memory(name: MemoryName): number;
}

const { int, float, bool } = makers<InstanceFacts>();

export const instanceFeatures: FeatureTable<InstanceFacts> = {
  number: int('', 'constant', 'its number from 0', ({ instance }) => instance.instance),
  inFlight: int(
    'requests',
    'fresh',
    'sent there by this router and not ended',
    ({ instance }) => instance.inFlight,
  ),
  inFlightTokens: int(
    'tokens',
    'fresh',
    'uncached prompt tokens sent there that had no first token yet',
    ({ instance }) => instance.inFlightTokens,
  ),
  queueDepth: int('requests', 'snapshot', 'that wait there', ({ instance }) => instance.queueDepth),
  batchSize: int('requests', 'snapshot', 'in its batch', ({ instance }) => instance.batchSize),
  load: int('requests', 'snapshot', 'queueDepth + batchSize + inFlight', ({ instance }) =>
    effectiveLoad(instance),
  ),
  availableCapacity: int(
    'requests',
    'snapshot',
    'free places of its batch',
    ({ instance }) => instance.availableCapacity,
  ),
  kvUtilization: float('0..1', 'snapshot', 'share of HBM that requests hold', ({ instance }) =>
    kvUtilization(instance),
  ),
  freeBlocks: int(
    'blocks',
    'snapshot',
    'of HBM, free or evictable',
    ({ instance }) => instance.kv.tiers[0]?.freeBlocks ?? 0,
  ),
  capacityBlocks: int(
    'blocks',
    'snapshot',
    'of HBM; 0 before the first report',
    ({ instance }) => instance.kv.tiers[0]?.capacityBlocks ?? 0,
  ),
  cacheHitRate: float(
    '0..1',
    'snapshot',
    'blocks found since the start',
    ({ instance }) => instance.kv.cacheHitRate,
  ),
  offloadRate: float('blocks/s', 'snapshot', 'down from HBM', ({ instance }) => instance.kv.offloadRate),
  reloadRate: float('blocks/s', 'snapshot', 'up to HBM', ({ instance }) => instance.kv.reloadRate),
  preemptions: int('', 'snapshot', 'since the start', ({ instance }) => instance.preemptions),
  recentTtftUs: float(
    'µs',
    'snapshot',
    'recent time to the first token, 0 before the first',
    ({ instance }) => instance.recentTtftUs,
  ),
  recentTpotUs: float(
    'µs',
    'snapshot',
    'recent time between tokens, 0 before the first',
    ({ instance }) => instance.recentTpotUs,
  ),
  estimatedWaitUs: float('µs', 'snapshot', 'queueDepth x recentTtftUs / batchSize', ({ instance }) =>
    estimatedWaitUs(instance),
  ),
  reportAgeUs: int('µs', 'fresh', 'age of its snapshot signals', ({ instance, context }) =>
    Math.max(0, context.router.nowUs - instance.reportedUs),
  ),
  prefixAffinity: float(
    '0..1',
    'fresh',
    'share of the prompt that this router sent there before',
    ({ memory }) => memory('prefix-affinity'),
  ),
  sessionHere: bool(
    'fresh',
    'whether the last request of the session went there',
    ({ memory }) => memory('session-affinity') === 1,
  ),
  coldRank: float(
    '0..1',
    'cacheSignal',
    'for a prompt that no instance has cached: 1 for the instance used longest ago for such; else 0.5',
    ({ memory }) => memory('no-hit-lru'),
  ),
  cachedBlocks: int(
    'blocks',
    'cacheSignal',
    'leading blocks of the prompt in its HBM',
    ({ instance, context }) => context.router.observedKv.topBlocks(context.request, instance.instance),
  ),
  tieredBlocks: int(
    'blocks',
    'cacheSignal',
    'leading blocks of the prompt in any of its tiers',
    ({ instance, context }) => context.router.observedKv.place(context.request, instance.instance).blocks,
  ),
  shadowBlocks: int(
    'blocks',
    'fresh',
    "leading blocks by the router's own prediction, 0 without one",
    ({ instance, context }) => context.router.shadowKv?.place(context.request, instance.instance).blocks ?? 0,
  ),
  adapterResident: bool(
    'snapshot',
    'whether the LoRA adapter of the request is in its memory',
    ({ instance, context }) =>
      context.request.adapter !== '' && instance.adapters.includes(context.request.adapter),
  ),
};

/** Features that need the observed view of caches to be kept. */
export const cacheFeatures: readonly string[] = ['coldRank', 'cachedBlocks', 'tieredBlocks'];

/** The memory behind each feature that has one. */
export const memoryOf: Readonly<Record<string, MemoryName>> = {
  prefixAffinity: 'prefix-affinity',
  sessionHere: 'session-affinity',
  coldRank: 'no-hit-lru',
};
