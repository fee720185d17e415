/**
 * The autoscaler of one deployment configuration: asks its policy when it is time or when a trigger fires,
 * and turns the wish into a change that keeps to the bounds. A direction acts only after it was wished for
 * without a break during its window; acting, and wishing otherwise, starts the window anew.
 */

import { configError, described, invariant, requireInteger } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../../runtime/options.ts';
import type { Stateful, StateVisitor } from '../../../runtime/snapshot.ts';
import type { GoRandom } from '../../random/goRand.ts';
import { type PolicyChoice, type PolicyWorld, visitStream } from '../policy.ts';
import {
  type AutoScaleContext,
  type AutoScalePolicy,
  type DelayDistribution,
  type DrainMode,
  type DrainPolicy,
  drainModes,
  type LoadSample,
  type ScaleDecision,
  type ScalingActuationConfig,
  type WarmupProfile,
  warmupCurves,
  warmupFactor,
} from './autoScalePolicy.ts';
import { towards } from './reactive.ts';
import { scalingPolicies } from './registry.ts';

/**
 * Conditions under which the autoscaler looks before its poll is due. Infinity disables a trigger, and 0 the one
 * of the attainment.
 */
export interface ScaleTriggers {
  /** Mean queue depth above this, for as long as `sustainedUs`. */
  readonly queueDepth: number;
  /** SLO attainment of any class below this. */
  readonly sloAttainment: number;
  /** KV utilisation above `utilizationHigh` or below `utilizationLow`, for as long as `sustainedUs`. */
  readonly utilizationHigh: number;
  readonly utilizationLow: number;
  /** The request rate differs from the rate at the last evaluation by this factor, up or down. */
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

const triggerTable = optionTable(
  {
    queueDepth: is.number(),
    sloAttainment: is.number(),
    utilizationHigh: is.number(),
    utilizationLow: is.number(),
    rateChange: is.number(),
    sustainedUs: is.number(),
  } satisfies Kinds<ScaleTriggers>,
  'TKV_CONFIG',
);
const scalerTable = optionTable(
  {
    /** The registry of policies resolves it. */
    policy: is.passed(),
    mode: is.oneOf<AutoScalerConfig['mode']>(['periodic', 'event']),
    pollIntervalUs: is.integer(1),
    minReplicas: is.integer(0, 1024),
    maxReplicas: is.integer(1, 1024),
    upWindowUs: is.integer(0),
    downWindowUs: is.integer(0),
    triggers: triggerTable,
  } satisfies Kinds<AutoScalerConfig>,
  'TKV_CONFIG',
);

function canFire({
  queueDepth,
  sloAttainment,
  utilizationHigh,
  utilizationLow,
  rateChange,
}: ScaleTriggers): boolean {
  const below = Math.max(sloAttainment, utilizationLow) > 0;
  return below || Math.min(queueDepth, utilizationHigh, rateChange) < Infinity;
}

/** @throws TKV_CONFIG with the field at fault, and the nearest name where one is unknown */
export function checkAutoScaler(config: AutoScalerConfig): AutoScalerConfig {
  scalerTable.read(config, 'scaling');
  if (config.minReplicas > config.maxReplicas) {
    const problem = `is ${config.minReplicas}, above scaling.maxReplicas ${config.maxReplicas}`;
    throw configError('scaling.minReplicas', problem, 'Lower it, or raise the other.');
  }
  if (config.mode === 'event' && !canFire(config.triggers)) {
    const problem = 'hold nothing that can fire, so that in mode event the policy would never be asked';
    throw configError('scaling.triggers', problem, 'Give one of them a value, or take mode periodic.');
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

  visitState(visitor: StateVisitor): void {
    this.#policy.visitState(visitor);
    this.#upSinceUs = visitor.number(this.#upSinceUs);
    this.#downSinceUs = visitor.number(this.#downSinceUs);
    this.#lastRate = visitor.number(this.#lastRate);
  }
}

// The life of the replicas of one deployment configuration. It makes no events itself: every call says what
// is to come, and when; the cluster schedules it and calls back.
//
//     ordered --decision delay--> PROVISIONING --provisioning--> LOADING --loaded--> READY
//     there from the start ------------------ cold ------------> LOADING, or READY and warm at once
//     READY (slower while the warm-up lasts) --scaled down--> DRAINING --empty, or time is up--> TERMINATED
//
// The count of replicas that are not draining or gone never leaves the bounds.

export type ReplicaPhase = 'ordered' | 'provisioning' | 'loading' | 'ready' | 'draining' | 'terminated';

interface ServingReplica {
  /** From 0 in order of their making; the lowest goes first when one of equals has to go. */
  readonly number: number;
  phase: ReplicaPhase;
  /** When its phase ends by itself, Infinity where it does not. */
  untilUs: number;
  /** When it became ready, -1 before. */
  readyUs: number;
  /** Whether it was ready from the start, and so is warm. */
  readonly initial: boolean;
}

/** How replicas of the start begin: ready and warm, or cold, with a model to load. */
export type ReplicaStart = 'warm' | 'cold';

/** An action that a call asks of the cluster. */
export type ReplicaAction =
  /** Call `due` for the replica at that time. */
  | { readonly kind: 'wait'; readonly replica: number; readonly untilUs: number }
  /** It takes requests from now on. */
  | { readonly kind: 'ready'; readonly replica: number }
  /** It takes no new requests; `mode` says what becomes of the requests it has. */
  | {
      readonly kind: 'drain';
      readonly replica: number;
      readonly mode: DrainMode;
      /** When what it still has is lost; -1 for never. */
      readonly untilUs: number;
    }
  /** It is gone; what it still had is lost. */
  | { readonly kind: 'terminate'; readonly replica: number };

const delayUs = is.by((value: number, field: string) => {
  if (Number.isFinite(value) && value >= 0 && value <= 1e12) return value;
  throw configError(field, `is ${described(value)}`, 'Give microseconds from 0 to 10^12.');
});
const penalty = is.by((value: number, field: string) => {
  if (value >= 1 && value <= 1000) return value;
  throw configError(field, `is ${described(value)}`, 'Give a factor from 1 to 1000; 1 means no penalty.');
});
const delayTable = optionTable(
  { meanUs: delayUs, stddevUs: delayUs } satisfies Kinds<DelayDistribution>,
  'TKV_CONFIG',
);
const actuationTable = optionTable(
  {
    decisionDelay: delayTable,
    provisioningDelay: delayTable,
    modelLoadTime: delayTable,
    warmup: optionTable(
      {
        durationUs: is.integer(0, 1e12),
        curve: is.oneOf(warmupCurves),
        initialPenaltyFactor: penalty,
      } satisfies Kinds<WarmupProfile>,
      'TKV_CONFIG',
    ),
    drain: optionTable(
      { mode: is.oneOf(drainModes), drainTimeoutUs: is.integer(0, 1e12) } satisfies Kinds<DrainPolicy>,
      'TKV_CONFIG',
    ),
  } satisfies Kinds<ScalingActuationConfig>,
  'TKV_CONFIG',
);

/** @throws TKV_CONFIG with the field at fault */
export function checkActuation(config: ScalingActuationConfig): ScalingActuationConfig {
  // fields of delays, warm-up and drain are named as the callers write them
  actuationTable.read(config, 'config');
  return config;
}

export class Replicas implements Stateful {
  readonly #config: ScalingActuationConfig;
  readonly #min: number;
  readonly #max: number;
  readonly #orders: GoRandom;
  readonly #machines: GoRandom;
  readonly #loads: GoRandom;
  readonly #replicas: ServingReplica[] = [];
  readonly #world: PolicyWorld;
  readonly #initial: number;
  readonly #start: ReplicaStart;

  /** @param initial replicas that there are at the start, warm, or cold: then they load their model first */
  constructor(
    config: ScalingActuationConfig,
    bounds: { readonly min: number; readonly max: number },
    initial: number,
    world: PolicyWorld,
    start: ReplicaStart = 'warm',
  ) {
    this.#world = world;
    this.#initial = initial;
    this.#start = start;
    this.#config = checkActuation(config);
    this.#min = bounds.min;
    this.#max = bounds.max;
    requireInteger('replicas', initial, bounds.min, bounds.max);
    this.#orders = world.stream('autoscaler');
    this.#machines = world.stream('node-provisioning');
    this.#loads = world.stream('instance-loading');
    const isWarm = start === 'warm';
    for (let number = 0; number < initial; number++) {
      const phase = isWarm ? 'ready' : 'loading';
      this.#replicas.push({ number, phase, untilUs: Infinity, readyUs: isWarm ? 0 : -1, initial: isWarm });
    }
  }

  /** Another one with the replicas of the start. */
  fresh(): Replicas {
    const bounds = { min: this.#min, max: this.#max };
    return new Replicas(this.#config, bounds, this.#initial, this.#world, this.#start);
  }

  /** The run begins: cold replicas of the start load their model. */
  begin(nowUs: number): ReplicaAction[] {
    return this.#replicas.flatMap((replica): ReplicaAction[] => {
      if (replica.phase !== 'loading' || replica.untilUs !== Infinity) return [];
      const actions = this.#advance(replica, 'loading', this.#config.modelLoadTime, this.#loads, nowUs);
      return replica.untilUs > nowUs ? actions : this.due(replica.number, nowUs);
    });
  }

  get all(): readonly Readonly<ServingReplica>[] {
    return this.#replicas;
  }

  /** Ready ones and those on their way. */
  get current(): number {
    return this.#count('ready') + this.pending;
  }

  get ready(): number {
    return this.#count('ready');
  }

  get pending(): number {
    return this.#count('ordered') + this.#count('provisioning') + this.#count('loading');
  }

  /** Carries a decision out, as far as the bounds allow. */
  apply(decision: ScaleDecision, nowUs: number): ReplicaAction[] {
    const target = Math.min(this.#max, Math.max(this.#min, decision.targetReplicas));
    const actions: ReplicaAction[] = [];
    while (this.current < target) actions.push(...this.#order(nowUs));
    while (this.current > target) actions.push(...this.#takeAway(nowUs));
    return actions;
  }

  /** The time of the replica's phase is up. Calls that come for a phase that is over change nothing. */
  due(number: number, nowUs: number): ReplicaAction[] {
    const replica = this.#find(number);
    if (replica.untilUs > nowUs) return [];
    switch (replica.phase) {
      case 'ordered':
        return this.#advance(replica, 'provisioning', this.#config.provisioningDelay, this.#machines, nowUs);
      case 'provisioning':
        return this.#advance(replica, 'loading', this.#config.modelLoadTime, this.#loads, nowUs);
      case 'loading':
        replica.phase = 'ready';
        replica.untilUs = Infinity;
        replica.readyUs = nowUs;
        return [{ kind: 'ready', replica: number }];
      case 'draining':
        return this.#terminate(replica);
      case 'ready':
      case 'terminated':
        return [];
    }
  }

  /** A replica that drains has nothing left. */
  empty(number: number): ReplicaAction[] {
    const replica = this.#find(number);
    return replica.phase === 'draining' ? this.#terminate(replica) : [];
  }

  /** Factor on the time of a step that the replica begins now; 1 for one that was there from the start. */
  slowdown(number: number, nowUs: number): number {
    const { initial, readyUs } = this.#find(number);
    return initial || readyUs < 0 ? 1 : warmupFactor(this.#config.warmup, nowUs - readyUs);
  }

  /** When the last warm-up that is under way ends; -1 without one. */
  warmUntilUs(number: number): number {
    const { initial, readyUs } = this.#find(number);
    return initial || readyUs < 0 ? -1 : readyUs + this.#config.warmup.durationUs;
  }

  #order(nowUs: number): ReplicaAction[] {
    const number = this.#replicas.length;
    const replica: ServingReplica = {
      number,
      phase: 'ordered',
      untilUs: Infinity,
      readyUs: -1,
      initial: false,
    };
    this.#replicas.push(replica);
    return this.#advance(replica, 'ordered', this.#config.decisionDelay, this.#orders, nowUs);
  }

  /** One that is on its way is called off first, the newest of them; else the lowest ready one drains. */
  #takeAway(nowUs: number): ReplicaAction[] {
    const pending = this.#replicas.findLast(({ phase }) =>
      ['ordered', 'provisioning', 'loading'].includes(phase),
    );
    if (pending !== undefined) return this.#terminate(pending);
    const replica = this.#replicas.find(({ phase }) => phase === 'ready');
    invariant(replica !== undefined, 'a replica that counts is ready or on its way');
    const { mode, drainTimeoutUs } = this.#config.drain;
    replica.phase = 'draining';
    const { number } = replica;
    if (mode === 'immediate') {
      return [{ kind: 'drain', replica: number, mode, untilUs: nowUs }, ...this.#terminate(replica)];
    }
    if (drainTimeoutUs === 0) {
      replica.untilUs = Infinity;
      return [{ kind: 'drain', replica: number, mode, untilUs: -1 }];
    }
    const untilUs = nowUs + drainTimeoutUs;
    replica.untilUs = untilUs;
    return [
      { kind: 'drain', replica: number, mode, untilUs },
      { kind: 'wait', replica: number, untilUs },
    ];
  }

  #advance(
    replica: ServingReplica,
    phase: ReplicaPhase,
    delay: DelayDistribution,
    random: GoRandom,
    nowUs: number,
  ): ReplicaAction[] {
    replica.phase = phase;
    replica.untilUs = nowUs + drawn(delay, random);
    return [{ kind: 'wait', replica: replica.number, untilUs: replica.untilUs }];
  }

  #terminate(replica: ServingReplica): ReplicaAction[] {
    replica.phase = 'terminated';
    replica.untilUs = Infinity;
    return [{ kind: 'terminate', replica: replica.number }];
  }

  #count(phase: ReplicaPhase): number {
    return this.#replicas.reduce((sum, replica) => sum + (replica.phase === phase ? 1 : 0), 0);
  }

  #find(number: number): ServingReplica {
    const replica = this.#replicas[number];
    invariant(replica !== undefined, () => `replica ${number} must be known`);
    return replica;
  }

  checkIntegrity(): void {
    const { current } = this;
    invariant(
      current >= this.#min && current <= this.#max,
      () => `${current} replicas are outside the bounds`,
    );
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => this.#replicas.map((replica) => ({ ...replica })),
      (saved) => {
        this.#replicas.splice(0, this.#replicas.length, ...saved.map((replica) => ({ ...replica })));
      },
    );
    for (const stream of [this.#orders, this.#machines, this.#loads]) visitStream(visitor, stream);
  }
}

/** max(0, N(mean, stddev)) in whole microseconds; nothing is drawn without a spread. */
function drawn({ meanUs, stddevUs }: DelayDistribution, random: GoRandom): number {
  const us = stddevUs === 0 ? meanUs : meanUs + stddevUs * random.normFloat64();
  return Math.max(0, Math.trunc(us));
}
