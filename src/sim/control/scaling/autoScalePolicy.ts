/** How many replicas a deployment configuration should have, from what was measured of it. */

import type { NamedPolicy } from '../policy.ts';

export interface DeploymentMetrics {
  /** Means over the ready replicas. */
  readonly avgQueueDepth: number;
  /** KV utilisation in [0, 1]. */
  readonly avgUtilization: number;
  /** Arrivals a second for this configuration. */
  readonly requestRate: number;
  /** Prompt tokens of an average request, 0 before the first. */
  readonly avgPromptTokens: number;
  readonly avgOutputTokens: number;
  /** By SLO class: share of the requests that ended since the last evaluation and met their targets. */
  readonly sloAttainment: Readonly<Record<string, number>>;
  readonly avgLatencyUs: number;
  readonly p99LatencyUs: number;
  readonly avgTtftUs: number;
  readonly avgTpotUs: number;
}

/** What a policy may know of one ready replica. */
export interface ReplicaSignals {
  readonly instance: number;
  readonly queueDepth: number;
  readonly batchSize: number;
  readonly inFlight: number;
  readonly maxBatch: number;
  readonly kvUtilization: number;
  readonly kvCapacityTokens: number;
  readonly kvUsedTokens: number;
}

/** One reading of the load, as often as the autoscaler looks. */
export interface LoadSample {
  readonly timeUs: number;
  /** Requests in flight over all replicas, those that wait at the gateway included. */
  readonly concurrency: number;
  readonly requestRate: number;
  readonly avgQueueDepth: number;
  readonly avgUtilization: number;
}

export interface AutoScaleContext {
  readonly configId: string;
  readonly nowUs: number;
  /** Ready and pending ones, without those that drain. */
  readonly currentReplicas: number;
  readonly readyReplicas: number;
  /** Being provisioned or loaded. */
  readonly pendingReplicas: number;
  readonly minReplicas: number;
  readonly maxReplicas: number;
  readonly metrics: DeploymentMetrics;
  /** By ready replica, in order of their numbers. */
  readonly replicas: readonly ReplicaSignals[];
  /** Oldest first; the last one is of now. */
  readonly loadHistory: readonly LoadSample[];
  /** Requests that wait at the gateway for this configuration. */
  readonly pendingRequests: number;
  /** Infinity before the first. */
  readonly sinceLastScaleUs: number;
}

export interface ScaleDecision {
  readonly action: 'none' | 'up' | 'down';
  readonly targetReplicas: number;
  readonly reason: string;
}

export interface AutoScalePolicy extends NamedPolicy {
  /** The wish of the policy; the autoscaler keeps it within its bounds and its stabilisation windows. */
  evaluate(context: AutoScaleContext): ScaleDecision;
}
