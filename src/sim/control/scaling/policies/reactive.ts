/**
 * Autoscaling policies that follow one measured figure: Kubernetes' horizontal pod autoscaler and Knative's pod
 * autoscaler with its panic mode.
 */

import { type PlainState, StatelessPolicy } from '../../policy.ts';
import type { AutoScaleContext, AutoScalePolicy, LoadSample, ScaleDecision } from '../autoScalePolicy.ts';

/** What a figure is read as. */
export const metricNames = ['concurrency', 'queueDepth', 'utilization', 'requestRate'] as const;
export type MetricName = (typeof metricNames)[number];

/** The figure a ready replica, at one reading. */
export function perReplica(sample: LoadSample, metric: MetricName, ready: number): number {
  switch (metric) {
    case 'concurrency':
      return sample.concurrency / Math.max(1, ready);
    case 'requestRate':
      return sample.requestRate / Math.max(1, ready);
    case 'queueDepth':
      return sample.avgQueueDepth;
    case 'utilization':
      return sample.avgUtilization;
  }
}

/** The decision that leads from the replicas of a context to `target`. */
export function towards(context: AutoScaleContext, target: number, reason: string): ScaleDecision {
  const { currentReplicas } = context;
  const action = target > currentReplicas ? 'up' : target < currentReplicas ? 'down' : 'none';
  return { action, targetReplicas: target, reason };
}

export function last(history: readonly LoadSample[]): LoadSample | undefined {
  return history[history.length - 1];
}

/**
 * ceil(ready x metric / target), nothing where metric / target is within the tolerance of 1. Growth in one
 * evaluation is limited to `maxUpShare` of the replicas or `maxUpReplicas`, whichever is more. Replicas that
 * are not ready count as if they carried nothing when it scales up, and are left as they are otherwise.
 */
export class Hpa extends StatelessPolicy implements AutoScalePolicy {
  readonly name: string = 'hpa';
  readonly #metric: MetricName;
  readonly #target: number;
  readonly #tolerance: number;
  readonly #maxUpShare: number;
  readonly #maxUpReplicas: number;

  constructor(
    metric: MetricName,
    target: number,
    tolerance: number,
    maxUpShare: number,
    maxUpReplicas: number,
  ) {
    super();
    this.#metric = metric;
    this.#target = target;
    this.#tolerance = tolerance;
    this.#maxUpShare = maxUpShare;
    this.#maxUpReplicas = maxUpReplicas;
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const sample = last(context.loadHistory);
    const { readyReplicas, currentReplicas, pendingReplicas } = context;
    if (sample === undefined || readyReplicas === 0)
      return towards(context, currentReplicas, 'nothing measured');
    const value = perReplica(sample, this.#metric, readyReplicas);
    let ratio = value / this.#target;
    const reason = `${this.#metric} ${value.toFixed(3)} a replica, target ${this.#target}`;
    if (Math.abs(ratio - 1) <= this.#tolerance) return towards(context, currentReplicas, reason);
    let replicas = readyReplicas;
    if (ratio > 1 && pendingReplicas > 0) {
      // pending ones will carry their share: what is needed is counted over all
      replicas = readyReplicas + pendingReplicas;
      ratio = (value * readyReplicas) / (replicas * this.#target);
      if (ratio <= 1 + this.#tolerance) return towards(context, currentReplicas, reason);
    }
    const wanted = Math.ceil(replicas * ratio - 1e-9);
    const most =
      currentReplicas + Math.max(Math.floor(currentReplicas * this.#maxUpShare), this.#maxUpReplicas);
    return towards(context, Math.min(wanted, most), reason);
  }
}

/**
 * stable = ceil(mean over the stable window / target), panic = ceil(mean over the panic window / target),
 * both clamped to [floor(n / maxScaleDownRate), ceil(maxScaleUpRate x n)]. Panic begins when panic / n
 * reaches the threshold; in panic the count only grows; it ends after a stable window below the threshold.
 */
export class Kpa implements AutoScalePolicy {
  readonly name: string = 'kpa';
  readonly #target: number;
  readonly #stableUs: number;
  readonly #panicUs: number;
  readonly #panicThreshold: number;
  readonly #maxUpRate: number;
  readonly #maxDownRate: number;
  /** When panic was called for last, or -1 outside panic. */
  #panickedUs = -1;
  #panicReplicas = 0;

  constructor(
    target: number,
    stableUs: number,
    panicUs: number,
    panicThreshold: number,
    maxUpRate: number,
    maxDownRate: number,
  ) {
    this.#target = target;
    this.#stableUs = stableUs;
    this.#panicUs = panicUs;
    this.#panicThreshold = panicThreshold;
    this.#maxUpRate = maxUpRate;
    this.#maxDownRate = maxDownRate;
  }

  evaluate(context: AutoScaleContext): ScaleDecision {
    const { nowUs, loadHistory } = context;
    const ready = Math.max(1, context.readyReplicas);
    if (loadHistory.length === 0) return towards(context, context.currentReplicas, 'nothing measured');
    const clamp = (wanted: number): number =>
      Math.min(Math.max(wanted, Math.floor(ready / this.#maxDownRate)), Math.ceil(this.#maxUpRate * ready));
    const over = (windowUs: number): number => meanConcurrency(loadHistory, nowUs - windowUs) / this.#target;
    const stable = clamp(Math.ceil(over(this.#stableUs)));
    const panic = clamp(Math.ceil(over(this.#panicUs)));
    if (panic / ready >= this.#panicThreshold) {
      if (this.#panickedUs === -1) this.#panicReplicas = 0;
      this.#panickedUs = nowUs;
    } else if (this.#panickedUs !== -1 && nowUs - this.#panickedUs >= this.#stableUs) {
      this.#panickedUs = -1;
    }
    if (this.#panickedUs === -1) return towards(context, stable, `stable ${stable}`);
    this.#panicReplicas = Math.max(this.#panicReplicas, panic, context.currentReplicas);
    return towards(context, this.#panicReplicas, `panic ${panic}`);
  }

  snapshot(): PlainState {
    return { panickedUs: this.#panickedUs, panicReplicas: this.#panicReplicas };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { panickedUs: number; panicReplicas: number };
    this.#panickedUs = saved.panickedUs;
    this.#panicReplicas = saved.panicReplicas;
  }
}

/** Mean concurrency of the readings after `fromUs`; of the last one where there is none. */
export function meanConcurrency(history: readonly LoadSample[], fromUs: number): number {
  let sum = 0;
  let count = 0;
  for (let i = history.length - 1; i >= 0 && (count === 0 || history[i].timeUs > fromUs); i--) {
    sum += history[i].concurrency;
    count++;
  }
  return sum / count;
}
