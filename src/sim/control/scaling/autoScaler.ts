/**
 * The autoscaler of one deployment configuration: asks its policy when it is time or when a trigger fires,
 * and turns the wish into a change that keeps to the bounds. A direction acts only after it was wished for
 * without a break during its window; acting, and wishing otherwise, starts the window anew.
 */

import { configError, requireInteger } from '../../../runtime/errors.ts';
import type { PlainState, PolicyChoice, PolicyWorld, Stateful } from '../policy.ts';
import type { AutoScaleContext, AutoScalePolicy, LoadSample, ScaleDecision } from './autoScalePolicy.ts';
import { towards } from './policies/reactive.ts';
import { scalingPolicies } from './policies/registry.ts';

/** What makes the autoscaler look before its poll is due; Infinity, and 0 for the attainment, for never. */
export interface ScaleTriggers {
  /** Mean queue depth above this, for as long as `sustainedUs`. */
  readonly queueDepth: number;
  /** SLO attainment of any class below this. */
  readonly sloAttainment: number;
  /** KV utilisation above `utilizationHigh` or below `utilizationLow`, for as long as `sustainedUs`. */
  readonly utilizationHigh: number;
  readonly utilizationLow: number;
  /** The request rate differs from that of the last evaluation by this factor, up or down. */
  readonly rateChange: number;
  readonly sustainedUs: number;
}

export interface AutoScalerConfig {
  readonly policy: PolicyChoice;
  readonly mode: 'periodic' | 'event';
  /** With `event`, how often triggers are looked at. */
  readonly pollIntervalUs: number;
  readonly minReplicas: number;
  readonly maxReplicas: number;
  readonly upWindowUs: number;
  readonly downWindowUs: number;
  readonly triggers: ScaleTriggers;
}

export const noTriggers: ScaleTriggers = {
  queueDepth: Infinity,
  sloAttainment: 0,
  utilizationHigh: Infinity,
  utilizationLow: -1,
  rateChange: Infinity,
  sustainedUs: 0,
};

/** @throws TKV_CONFIG with the field at fault */
export function checkAutoScaler(config: AutoScalerConfig): AutoScalerConfig {
  requireInteger('scaling.pollIntervalUs', config.pollIntervalUs, 1);
  requireInteger('scaling.minReplicas', config.minReplicas, 0, 1024);
  requireInteger('scaling.maxReplicas', config.maxReplicas, 1, 1024);
  requireInteger('scaling.upWindowUs', config.upWindowUs, 0);
  requireInteger('scaling.downWindowUs', config.downWindowUs, 0);
  if (config.minReplicas > config.maxReplicas) {
    const problem = `is ${config.minReplicas}, above scaling.maxReplicas ${config.maxReplicas}`;
    throw configError('scaling.minReplicas', problem, 'Lower it, or raise the other.');
  }
  return { ...config, policy: scalingPolicies.resolve(config.policy) };
}

export class AutoScaler implements Stateful {
  readonly config: AutoScalerConfig;
  readonly #world: PolicyWorld;
  readonly #makePolicy: ((world: PolicyWorld) => AutoScalePolicy) | undefined;
  readonly #policy: AutoScalePolicy;
  /** Since when a direction has been wished for, or -1. */
  #upSinceUs = -1;
  #downSinceUs = -1;
  /** Request rate of the last evaluation, or -1 before it. */
  #lastRate = -1;

  /** @param makePolicy one that no registry names; it goes before the configuration's */
  constructor(
    config: AutoScalerConfig,
    world: PolicyWorld,
    makePolicy?: (world: PolicyWorld) => AutoScalePolicy,
  ) {
    this.config = checkAutoScaler(config);
    this.#world = world;
    this.#makePolicy = makePolicy;
    this.#policy = makePolicy?.(world) ?? scalingPolicies.make(this.config.policy, world);
  }

  get policyName(): string {
    return this.#policy.name;
  }

  /** Another one of the same policy that has seen nothing. */
  fresh(): AutoScaler {
    return new AutoScaler(this.config, this.#world, this.#makePolicy);
  }

  /** Looks, at a poll. The decision is within the bounds, and its action what is to be done now. */
  evaluate(context: AutoScaleContext): ScaleDecision {
    const { mode, minReplicas, maxReplicas } = this.config;
    const bounded = (count: number): number => Math.min(maxReplicas, Math.max(minReplicas, count));
    const { currentReplicas, nowUs } = context;
    // outside the bounds there is nothing to wait for
    if (currentReplicas !== bounded(currentReplicas)) {
      return towards(context, bounded(currentReplicas), 'outside its bounds');
    }
    const trigger = mode === 'periodic' ? 'poll' : this.#trigger(context);
    if (trigger === '') return towards(context, currentReplicas, 'no trigger');
    this.#lastRate = context.metrics.requestRate;
    const wish = this.#policy.evaluate(context);
    const target = bounded(wish.targetReplicas);
    this.#upSinceUs = target > currentReplicas ? (this.#upSinceUs === -1 ? nowUs : this.#upSinceUs) : -1;
    this.#downSinceUs =
      target < currentReplicas ? (this.#downSinceUs === -1 ? nowUs : this.#downSinceUs) : -1;
    const ready =
      target > currentReplicas
        ? nowUs - this.#upSinceUs >= this.config.upWindowUs
        : target < currentReplicas && nowUs - this.#downSinceUs >= this.config.downWindowUs;
    const reason = `${trigger}: ${wish.reason}`;
    // at the start nothing has come yet, and that an instance is idle says nothing
    if (nowUs === 0 && target < currentReplicas) {
      return towards(context, currentReplicas, `${reason}, before anything was seen`);
    }
    if (!ready)
      return towards(context, currentReplicas, target === currentReplicas ? reason : `${reason}, waiting`);
    this.#upSinceUs = -1;
    this.#downSinceUs = -1;
    return towards(context, target, reason);
  }

  /** The trigger that fires, '' for none. */
  #trigger({ metrics, loadHistory, nowUs }: AutoScaleContext): string {
    const { triggers } = this.config;
    const sustained = (holds: (sample: LoadSample) => boolean): boolean => {
      const from = nowUs - triggers.sustainedUs;
      // the readings must reach back to the start of the span
      const span = loadHistory.filter((sample) => sample.timeUs >= from);
      const reaches = loadHistory.some((sample) => sample.timeUs <= from);
      return span.length > 0 && (reaches || triggers.sustainedUs === 0) && span.every(holds);
    };
    if (sustained(({ avgQueueDepth }) => avgQueueDepth > triggers.queueDepth)) return 'queue depth';
    if (Object.values(metrics.sloAttainment).some((met) => met < triggers.sloAttainment))
      return 'SLO attainment';
    if (sustained(({ avgUtilization }) => avgUtilization > triggers.utilizationHigh))
      return 'high utilisation';
    if (sustained(({ avgUtilization }) => avgUtilization < triggers.utilizationLow)) return 'low utilisation';
    const rate = metrics.requestRate;
    if (this.#lastRate >= 0 && triggers.rateChange < Infinity) {
      const [low, high] = rate < this.#lastRate ? [rate, this.#lastRate] : [this.#lastRate, rate];
      if (high > 0 && high >= low * triggers.rateChange) return 'request rate';
    }
    if (this.#lastRate < 0) this.#lastRate = rate;
    return '';
  }

  snapshot(): PlainState {
    return {
      policy: this.#policy.snapshot(),
      upSinceUs: this.#upSinceUs,
      downSinceUs: this.#downSinceUs,
      lastRate: this.#lastRate,
    };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { policy: PlainState; upSinceUs: number; downSinceUs: number; lastRate: number };
    this.#policy.restore(saved.policy);
    this.#upSinceUs = saved.upSinceUs;
    this.#downSinceUs = saved.downSinceUs;
    this.#lastRate = saved.lastRate;
  }
}
