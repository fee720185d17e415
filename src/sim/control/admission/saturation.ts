/** How full the instances are, as one number: 0 is idle, 1 full. What admission and the gateway go by. */

import type { ClusterState, InstanceSnapshot } from '../instances.ts';

/** KV utilisation of HBM. */
export function kvUtilization(instance: InstanceSnapshot): number {
  return instance.kv.tiers[0]?.utilization ?? 0;
}

/**
 * Mean over instances of the larger of queue depth over `queueThreshold` and KV utilisation over
 * `kvThreshold`; 1 without instances. Upstream's `utilization` detector.
 */
export function utilizationSaturation(
  { instances }: ClusterState,
  queueThreshold: number,
  kvThreshold: number,
): number {
  if (instances.length === 0) return 1;
  let sum = 0;
  for (const instance of instances) {
    sum += Math.max(instance.queueDepth / queueThreshold, kvUtilization(instance) / kvThreshold);
  }
  return sum / instances.length;
}

export const concurrencyKinds = ['requests', 'tokens', 'hybrid'] as const;
export type ConcurrencyKind = (typeof concurrencyKinds)[number];

/** Undefined for a name that is none of them. */
export function concurrencyKindOf(name: string): ConcurrencyKind | undefined {
  return concurrencyKinds.find((kind) => kind === name);
}

/** What an instance should have in flight, and which of the two counts; with `hybrid` both do. */
export interface ConcurrencyCaps {
  readonly kind: ConcurrencyKind;
  readonly requests: number;
  /** Uncached prompt tokens of requests without a first token. */
  readonly tokens: number;
}

/**
 * What is in flight over what all instances together should have, with `hybrid` the larger of both shares; 1
 * without instances. llm-d's concurrency detector.
 */
export function concurrencySaturation({ instances }: ClusterState, caps: ConcurrencyCaps): number {
  if (instances.length === 0) return 1;
  let requests = 0;
  let tokens = 0;
  for (const { inFlight, inFlightTokens } of instances) {
    requests += inFlight;
    tokens += inFlightTokens;
  }
  const byRequests = requests / (instances.length * caps.requests);
  const byTokens = tokens / (instances.length * caps.tokens);
  if (caps.kind === 'hybrid') return Math.max(byRequests, byTokens);
  return caps.kind === 'tokens' ? byTokens : byRequests;
}
