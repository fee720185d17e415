/**
 * What the control plane sees of instances. A snapshot is written by the `SignalBoard` alone; policies read
 * it. Each signal is as old as its group says: counts that the router keeps itself are always fresh, what
 * instances report is as old as the last report.
 */

import type { BlockKeys } from '../../runtime/keys/index.ts';

export type Role = 'monolithic' | 'prefill' | 'decode';

/** Seen of one tier of an instance, HBM first. Shares lie in [0, 1]. */
export interface ObservedTier {
  readonly capacityBlocks: number;
  /** Blocks that requests hold; in lower tiers all blocks that hold anything. */
  readonly usedBlocks: number;
  /** Free or evictable. */
  readonly freeBlocks: number;
  /** used / capacity. */
  readonly utilization: number;
}

/** The KV cache of an instance as it reports it: right when it was read, and coarse. */
export interface ObservedKV {
  readonly tiers: readonly ObservedTier[];
  /** Hits over lookups in blocks since the start. */
  readonly cacheHitRate: number;
  /** Blocks a second down and up a tier, between the last two reports. */
  readonly offloadRate: number;
  readonly reloadRate: number;
}

export interface InstanceSnapshot {
  /** Place in the cluster from 0. Ties between instances go to the lowest. */
  readonly instance: number;
  readonly id: string;
  readonly role: Role;
  readonly model: string;
  readonly configId: string;

  /** Reported: requests that wait in the instance's queue, and requests in its batch. */
  readonly queueDepth: number;
  readonly batchSize: number;
  /** Reported: preemptions since the start. */
  readonly preemptions: number;
  /** Reported. */
  readonly kv: ObservedKV;
  /** Reported: mean of the recent requests in microseconds, 0 before the first. */
  readonly recentTtftUs: number;
  readonly recentTpotUs: number;
  /** Reported: batch slots that are free. */
  readonly availableCapacity: number;
  /** Reported: adapters in its memory. */
  readonly adapters: readonly string[];
  /** When the reported signals were read; 0 before the first report, when all of them are 0. */
  readonly reportedUs: number;

  /** Fresh: requests that the router sent there and that have not ended. */
  readonly inFlight: number;
  /** Fresh: prompt tokens of these that had no first token yet, less those that were found cached. */
  readonly inFlightTokens: number;
}

/** `queueDepth + batchSize + inFlight`, upstream's load of an instance; a request in flight counts twice. */
export function effectiveLoad(instance: InstanceSnapshot): number {
  return instance.queueDepth + instance.batchSize + instance.inFlight;
}

/**
 * Expected wait for the batch in microseconds: queued requests times the recent time to the first token, over
 * the requests in the batch. Coarse on purpose: it is made of reported signals only.
 */
export function estimatedWaitUs(instance: InstanceSnapshot): number {
  return (instance.queueDepth * instance.recentTtftUs) / Math.max(1, instance.batchSize);
}

/** All instances that could take a request now, in order of their numbers. */
export interface ClusterState {
  readonly nowUs: number;
  readonly instances: readonly InstanceSnapshot[];
}

/** Reads one instance, when a report of it is due. The cluster implements it for its instances. */
export interface InstanceProbe {
  readonly instance: number;
  readonly id: string;
  readonly role: Role;
  readonly model: string;
  readonly configId: string;
  /** Blocks of each tier, HBM first. */
  readonly capacityBlocks: readonly number[];
  /** Grows with whatever changes a report. Left out, or -1, where nobody counts: then each report is new. */
  changes?(): number;
  /** Fills in what the instance knows of itself now. */
  report(into: InstanceReport): void;
  /** Leading blocks of `keys` that are cached in HBM now. */
  cachedBlocks(keys: BlockKeys, blocks: number): number;
}

/** The raw figures of a report; counters count since the start of the instance. */
export interface InstanceReport {
  queueDepth: number;
  batchSize: number;
  maxBatch: number;
  preemptions: number;
  /** By tier, HBM first. */
  usedBlocks: number[];
  freeBlocks: number[];
  hitBlocks: number;
  lookupBlocks: number;
  offloadedBlocks: number;
  reloadedBlocks: number;
  recentTtftUs: number;
  recentTpotUs: number;
  adapters: readonly string[];
}
