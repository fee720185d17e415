/** How many replicas a deployment configuration should have, from what was measured of it. */

import * as elementary from '../../random/elementary.ts';
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
  /** Share of the requests that ended since the last evaluation and met their targets, by SLO class. */
  readonly sloAttainment: Readonly<Record<string, number>>;
  readonly avgLatencyUs: number;
  readonly p99LatencyUs: number;
  readonly avgTtftUs: number;
  readonly avgTpotUs: number;
}

/** A policy's view of one ready replica. */
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
  /** Requests in flight over all replicas, and requests that wait at the gateway. */
  readonly concurrency: number;
  readonly requestRate: number;
  readonly avgQueueDepth: number;
  readonly avgUtilization: number;
}

export interface AutoScaleContext {
  readonly configId: string;
  readonly nowUs: number;
  /** Ready and pending replicas, without draining ones. */
  readonly currentReplicas: number;
  readonly readyReplicas: number;
  /** Being provisioned or loaded. */
  readonly pendingReplicas: number;
  readonly minReplicas: number;
  readonly maxReplicas: number;
  readonly metrics: DeploymentMetrics;
  /** Ready replicas, in order of their numbers. */
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

//  How long scaling takes and how replicas come and go. Times are in microseconds unless the name says so.

/** A delay that is drawn for each action: normal, cut at 0. Without spread nothing is drawn. */
export interface DelayDistribution {
  readonly meanUs: number;
  readonly stddevUs: number;
}

export const warmupCurves = ['linear', 'exponential', 'step'] as const;
type WarmupCurve = (typeof warmupCurves)[number];

/** A new replica is slower at first, in simulated time. Its cache starts cold by itself. */
export interface WarmupProfile {
  readonly durationUs: number;
  readonly curve: WarmupCurve;
  /** How much longer a step takes at the start: 1.5 is half as long again; at least 1. */
  readonly initialPenaltyFactor: number;
}

export const drainModes = ['immediate', 'wait', 'redirect'] as const;
export type DrainMode = (typeof drainModes)[number];

export interface DrainPolicy {
  /**
   * `immediate`: what it runs is lost. `wait`: it takes nothing new and ends what it has. `redirect`: what
   * waits there is routed again, what runs there is ended.
   */
  readonly mode: DrainMode;
  /** With `wait` and `redirect`: after so long the rest is lost; 0 for no limit. */
  readonly drainTimeoutUs: number;
}

export interface ScalingActuationConfig {
  /** From the decision until the order takes effect. */
  readonly decisionDelay: DelayDistribution;
  /** Until a machine is there. */
  readonly provisioningDelay: DelayDistribution;
  /** Until the model is in its memory. */
  readonly modelLoadTime: DelayDistribution;
  readonly warmup: WarmupProfile;
  readonly drain: DrainPolicy;
}

//  How much slower a new replica is. The curve lies in simulated time, so every step in it takes longer.

/** Share of the initial penalty that is left when an exponential warm-up ends. */
const LEFT_AT_END = 0.01;
const DECAY = -elementary.log(LEFT_AT_END);

/**
 * Factor on the time of a step that begins `sinceReadyUs` after the replica was ready; 1 when it is warm.
 * With f the initial factor and x the share of the warm-up that has passed: linear f - (f - 1) x, exponential
 * 1 + (f - 1) e^(-x ln 100), step f until the end.
 */
export function warmupFactor(profile: WarmupProfile, sinceReadyUs: number): number {
  const { durationUs, curve, initialPenaltyFactor } = profile;
  if (sinceReadyUs >= durationUs || initialPenaltyFactor <= 1) return 1;
  const share = Math.max(0, sinceReadyUs) / durationUs;
  const penalty = initialPenaltyFactor - 1;
  switch (curve) {
    case 'linear':
      return 1 + penalty * (1 - share);
    case 'exponential':
      return 1 + penalty * elementary.exp(-DECAY * share);
    case 'step':
      return initialPenaltyFactor;
  }
}
