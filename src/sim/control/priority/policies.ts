/** The priority policies. All give the scheduler a rank in which lower is more urgent. */

import type { Priority } from '../decisions.ts';
import { StatelessPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { PriorityPolicy } from './priorityPolicy.ts';
import type { SloPriorities } from './sloPriorities.ts';

/** Ranks are whole; scores of a tenant's share are told apart to this part of a step between classes. */
const RANKS_A_STEP = 1000;

function dueUs(request: RequestView): number {
  return request.sloTargetUs > 0 ? request.arrivalUs + request.sloTargetUs : 0;
}

/** The class decides: upstream's rule. One object a class serves all its requests without targets. */
export class SloClassPriority extends StatelessPolicy implements PriorityPolicy {
  readonly name: string = 'slo-class';
  readonly #priorities: SloPriorities;
  readonly #made = new Map<number, Priority>();

  constructor(priorities: SloPriorities) {
    super();
    this.#priorities = priorities;
  }

  prioritise(request: RequestView): Priority {
    const score = this.#priorities.of(request.sloClass);
    if (request.sloTargetUs > 0) return this.#make(score, dueUs(request));
    let made = this.#made.get(score);
    if (made === undefined) this.#made.set(score, (made = this.#make(score, 0)));
    return made;
  }

  #make(score: number, due: number): Priority {
    return { score, rank: this.#priorities.highest - score, hints: { sheddable: score < 0, dueUs: due } };
  }
}

/** All alike: who may be shed is still the class's matter. */
export class ConstantPriority extends StatelessPolicy implements PriorityPolicy {
  readonly name: string = 'constant';
  readonly #priorities: SloPriorities;
  readonly #score: number;

  constructor(priorities: SloPriorities, score: number) {
    super();
    this.#priorities = priorities;
    this.#score = score;
  }

  prioritise(request: RequestView): Priority {
    const sheddable = this.#priorities.of(request.sloClass) < 0;
    return { score: this.#score, rank: 0, hints: { sheddable, dueUs: dueUs(request) } };
  }
}

/**
 * Earliest due first within a class: the class counts `classWeightUs` for each step of its priority, and a
 * request is as urgent as its time to the first token is near. Without a target of its own a request takes
 * that of its class. The rank is the due time less the class's credit, so it needs no clock.
 */
export class DeadlinePriority extends StatelessPolicy implements PriorityPolicy {
  readonly name: string = 'slo-deadline';
  readonly #priorities: SloPriorities;
  readonly #targetsUs: Readonly<Record<string, number>>;
  readonly #classWeightUs: number;

  constructor(priorities: SloPriorities, targetsUs: Readonly<Record<string, number>>, classWeightUs: number) {
    super();
    this.#priorities = priorities;
    this.#targetsUs = targetsUs;
    this.#classWeightUs = classWeightUs;
  }

  prioritise(request: RequestView): Priority {
    const own = this.#priorities.of(request.sloClass);
    const targetUs = request.sloTargetUs > 0 ? request.sloTargetUs : (this.#targetsUs[request.sloClass] ?? 0);
    // none: as far off as any
    const due = targetUs > 0 ? request.arrivalUs + targetUs : request.arrivalUs + 3_600_000_000;
    const rank = Math.round(due - own * this.#classWeightUs);
    const hints = { sheddable: own < 0, dueUs: targetUs > 0 ? due : 0 };
    return { score: -rank, rank, hints };
  }
}

/**
 * The class, less what the tenant has in flight beyond a fair share of all: one tenant's flood does not push
 * others of its class back.
 */
export class FairSharePriority extends StatelessPolicy implements PriorityPolicy {
  readonly name: string = 'fair-share';
  readonly #priorities: SloPriorities;
  readonly #penaltyPerRequest: number;
  readonly #most: number;

  constructor(priorities: SloPriorities, penaltyPerRequest: number, most: number) {
    super();
    this.#priorities = priorities;
    this.#penaltyPerRequest = penaltyPerRequest;
    this.#most = most;
  }

  prioritise(request: RequestView, router: RouterState): Priority {
    const own = this.#priorities.of(request.sloClass);
    const tenants = Math.max(1, router.tenants.length);
    const beyond = router.tenant(request.tenantId).activeRequests - router.global.inFlight / tenants;
    const score = own - Math.min(this.#most, Math.max(0, beyond * this.#penaltyPerRequest));
    const hints = { sheddable: own < 0, dueUs: dueUs(request) };
    const rank = Math.round(RANKS_A_STEP * (this.#priorities.highest - score));
    return { score, rank, hints };
  }
}
