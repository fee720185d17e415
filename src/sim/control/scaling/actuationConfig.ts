/** How long scaling takes and how replicas come and go. Times are in microseconds unless the name says so. */

/** A delay that is drawn for each action: normal, cut at 0. Without spread nothing is drawn. */
export interface DelayDistribution {
  readonly meanUs: number;
  readonly stddevUs: number;
}

export const warmupCurves = ['linear', 'exponential', 'step'] as const;
export type WarmupCurve = (typeof warmupCurves)[number];

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
