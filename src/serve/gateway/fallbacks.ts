/**
 * Policies of a bundle that may fail, each before a rule that cannot. A simulation ends with the error of a policy; a
 * gateway answers its clients. A policy that has failed several times running is left alone for a while, so that a broken
 * one does not cost its whole budget at each request. Time is the time of the decision, so the same inputs give the same
 * fallbacks.
 *
 *     slot        rule
 *     admission   always-admit
 *     priority    slo-class
 *     routing     least-loaded
 */

import { PolicyError } from '../../policy/sandbox/program.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';
import type { BoundPolicies } from '../../sim/build/built.ts';
import { type AdmissionPolicy, admissionPolicies } from '../../sim/control/admission.ts';
import type { MadePolicies } from '../../sim/control/plane.ts';
import type {
  AdmissionDecision,
  NamedPolicy,
  PolicyWorld,
  RequestOutcome,
  RequestPriority,
  RequestView,
} from '../../sim/control/policy.ts';
import { type PriorityPolicy, priorityPolicies } from '../../sim/control/priority.ts';
import type { RouterState } from '../../sim/control/routerState.ts';
import { routingPolicies } from '../../sim/control/routing/routing.ts';
import type {
  RoutingChoice,
  RoutingContext,
  RoutingPolicy,
} from '../../sim/control/routing/routingPolicy.ts';

/** Failures running after which a policy is left alone. */
const FAILURES_RUNNING = 5;
/** How long it is left alone: long enough that its budget costs little, short enough to see that it works again. */
const REST_US = 10_000_000;

/** One decision of a policy that failed. */
interface PolicyFailure {
  readonly slot: 'admission' | 'priority' | 'routing';
  /** A kind of `PolicyError`; `resting` while the policy is left alone. */
  readonly kind: string;
  /** Number of the request. */
  readonly request: number;
  readonly nowUs: number;
}

type TellFailure = (failure: PolicyFailure) => void;

/** The policies of a bundle, each with its rule behind it. `tell` is called for each decision that the rule took. */
export function withFallbacks({ policies }: BoundPolicies, tell: TellFailure): MadePolicies {
  const { admission, priority, routing } = policies;
  return {
    ...(admission && {
      admission: (world: PolicyWorld) => new GuardedAdmission(admission(world), world, tell),
    }),
    ...(priority && { priority: (world: PolicyWorld) => new GuardedPriority(priority(world), world, tell) }),
    ...(routing && { routing: (world: PolicyWorld) => new GuardedRouting(routing(world), world, tell) }),
  };
}

/** Asks a policy, or its rule where it fails or rests. */
class PolicyGuard {
  readonly #slot: PolicyFailure['slot'];
  readonly #tell: TellFailure;
  #failures = 0;
  #restsUntilUs = 0;

  constructor(slot: PolicyFailure['slot'], tell: TellFailure) {
    this.#slot = slot;
    this.#tell = tell;
  }

  /** @param decides whether an answer shows that the policy decides again, which ends a row of failures */
  ask<T>(request: number, nowUs: number, policy: () => T, rule: () => T, decides: boolean = true): T {
    if (nowUs < this.#restsUntilUs) {
      this.#tell({ slot: this.#slot, kind: 'resting', request, nowUs });
      return rule();
    }
    try {
      const answer = policy();
      if (decides) this.#failures = 0;
      return answer;
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error;
      if (++this.#failures >= FAILURES_RUNNING) {
        this.#failures = 0;
        this.#restsUntilUs = nowUs + REST_US;
      }
      this.#tell({ slot: this.#slot, kind: error.kind, request, nowUs });
      return rule();
    }
  }

  /** Tells the policy what became of a request. */
  learn(outcome: RequestOutcome, policy: NamedPolicy): void {
    const { request, nowUs } = outcome;
    const learned = (): void => policy.completed?.(outcome);
    this.ask(request.number, nowUs, learned, () => {}, false);
  }

  visitState(visitor: StateVisitor): void {
    this.#failures = visitor.number(this.#failures);
    this.#restsUntilUs = visitor.number(this.#restsUntilUs);
  }
}

class GuardedAdmission implements AdmissionPolicy {
  readonly name: string;
  readonly completed?: (outcome: RequestOutcome) => void;
  readonly #policy: AdmissionPolicy;
  readonly #rule: AdmissionPolicy;
  readonly #guard: PolicyGuard;

  constructor(policy: AdmissionPolicy, world: PolicyWorld, tell: TellFailure) {
    this.name = policy.name;
    this.#policy = policy;
    this.#rule = admissionPolicies.make({ policy: admissionPolicies.nameOf('isUsual') }, world);
    this.#guard = new PolicyGuard('admission', tell);
    if (policy.completed !== undefined) this.completed = (outcome) => this.#guard.learn(outcome, policy);
  }

  decide(...asked: Parameters<AdmissionPolicy['decide']>): AdmissionDecision {
    const [request, , router] = asked;
    return this.#guard.ask(
      request.number,
      router.nowUs,
      () => this.#policy.decide(...asked),
      () => this.#rule.decide(...asked),
    );
  }

  ended(request: RequestView, nowUs: number): void {
    this.#policy.ended?.(request, nowUs);
  }

  visitState(visitor: StateVisitor): void {
    this.#policy.visitState(visitor);
    this.#guard.visitState(visitor);
  }
}

class GuardedPriority implements PriorityPolicy {
  readonly name: string;
  readonly completed?: (outcome: RequestOutcome) => void;
  readonly #policy: PriorityPolicy;
  readonly #rule: PriorityPolicy;
  readonly #guard: PolicyGuard;

  constructor(policy: PriorityPolicy, world: PolicyWorld, tell: TellFailure) {
    this.name = policy.name;
    this.#policy = policy;
    this.#rule = priorityPolicies.make({ policy: 'slo-class' }, world);
    this.#guard = new PolicyGuard('priority', tell);
    if (policy.completed !== undefined) this.completed = (outcome) => this.#guard.learn(outcome, policy);
  }

  prioritise(request: RequestView, router: RouterState): RequestPriority {
    return this.#guard.ask(
      request.number,
      router.nowUs,
      () => this.#policy.prioritise(request, router),
      () => this.#rule.prioritise(request, router),
    );
  }

  visitState(visitor: StateVisitor): void {
    this.#policy.visitState(visitor);
    this.#guard.visitState(visitor);
  }
}

class GuardedRouting implements RoutingPolicy {
  readonly name: string;
  readonly readsCaches: boolean;
  readonly readsReports: boolean = true;
  readonly completed?: (outcome: RequestOutcome) => void;
  readonly #policy: RoutingPolicy;
  readonly #rule: RoutingPolicy;
  readonly #guard: PolicyGuard;

  constructor(policy: RoutingPolicy, world: PolicyWorld, tell: TellFailure) {
    this.name = policy.name;
    this.readsCaches = policy.readsCaches;
    this.#policy = policy;
    this.#rule = routingPolicies.make({ policy: 'least-loaded' }, world);
    this.#guard = new PolicyGuard('routing', tell);
    if (policy.completed !== undefined) this.completed = (outcome) => this.#guard.learn(outcome, policy);
  }

  choose(context: RoutingContext): RoutingChoice {
    return this.#guard.ask(
      context.request.number,
      context.router.nowUs,
      () => this.#policy.choose(context),
      () => this.#rule.choose(context),
    );
  }

  routed(context: RoutingContext, instance: number): void {
    this.#policy.routed?.(context, instance);
    this.#rule.routed?.(context, instance);
  }

  removed(instance: number): void {
    this.#policy.removed?.(instance);
    this.#rule.removed?.(instance);
  }

  visitState(visitor: StateVisitor): void {
    this.#policy.visitState(visitor);
    this.#rule.visitState(visitor);
    this.#guard.visitState(visitor);
  }
}
