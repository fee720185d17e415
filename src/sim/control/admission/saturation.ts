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

/** Requests in flight over what all instances together should have; 1 without instances. */
export function concurrencySaturation({ instances }: ClusterState, perInstance: number): number {
  if (instances.length === 0) return 1;
  let sum = 0;
  for (const instance of instances) sum += instance.inFlight;
  return sum / (instances.length * perInstance);
}
