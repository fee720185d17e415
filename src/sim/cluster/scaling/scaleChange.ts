/** What is told of scaling: each decision that changes something, and each step in the life of a replica. */

import type { DeploymentMetrics, ReplicaPhase, ScaleDecision } from '../../control/index.ts';

/** A decision to change the number of replicas of a configuration. */
export interface ScaleChange {
  readonly configId: string;
  readonly timeUs: number;
  readonly action: ScaleDecision['action'];
  /** Replicas that are ready or on their way, before and after. */
  readonly previousCount: number;
  readonly newCount: number;
  readonly reason: string;
  /** What the policy saw. */
  readonly metrics: DeploymentMetrics;
}

/** A replica begins a phase of its life. */
export interface ReplicaChange {
  readonly configId: string;
  readonly timeUs: number;
  /** From 0 in its configuration. */
  readonly replica: number;
  /** Number of its instance, -1 before it is ready. */
  readonly instance: number;
  readonly phase: ReplicaPhase;
  /**
   * When that phase ends by itself: the delay is drawn. For a ready one, when its warm-up ends; -1 where it
   * has no end of its own.
   */
  readonly untilUs: number;
}
