/** The second stage: how urgent a request is. All policies give the scheduler a rank in which lower is more urgent. */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import {
  type NamedPolicy,
  noMemory,
  ownNumber,
  type PolicyWorld,
  type RequestPriority,
  type RequestView,
  StatelessPolicy,
} from './policy.ts';
import { type NumberRule, type PolicyEntry, Registry } from './registry.ts';
import type { RouterState } from './routerState.ts';

/** Ranks are whole; scores of a tenant's share are told apart to this part of a step between classes. */
const RANKS_A_STEP = 1000;

function dueUs(request: RequestView): number {
  return request.sloTargetUs > 0 ? request.arrivalUs + request.sloTargetUs : 0;
}

/** The class decides: upstream's rule. One object a class serves all its requests without targets. */
class SloClassPriority extends StatelessPolicy implements PriorityPolicy {
  readonly name: string = 'slo-class';
  readonly #priorities: SloPriorities;
  readonly #made = new Map<number, RequestPriority>();

  constructor(priorities: SloPriorities) {
    super();
    this.#priorities = priorities;
  }

  prioritise(request: RequestView): RequestPriority {
    const score = this.#priorities.of(request.sloClass);
    if (request.sloTargetUs > 0) return this.#make(score, dueUs(request));
    let made = this.#made.get(score);
    if (made === undefined) this.#made.set(score, (made = this.#make(score, 0)));
    return made;
  }

  #make(score: number, due: number): RequestPriority {
    return { score, rank: this.#priorities.highest - score, hints: { sheddable: score < 0, dueUs: due } };
  }
}

/** All alike: who may be shed is still the class's matter. */
function constantPriority(byClass: SloPriorities, score: number): PriorityPolicy {
  return {
    ...noMemory,
    name: 'constant',
    prioritise(request) {
      const sheddable = byClass.of(request.sloClass) < 0;
      return { score, rank: 0, hints: { sheddable, dueUs: dueUs(request) } };
    },
  };
}

/**
 * Earliest due first within a class: the class counts `classWeightUs` for each step of its priority, and a
 * request is as urgent as its time to the first token is near. A request without a target of its own takes
 * the target of its class. The rank is the due time less the class's credit, so it needs no clock.
 */
function deadlinePriority(
  byClass: SloPriorities,
  targetsUs: Readonly<Record<string, number>>,
  classWeightUs: number,
): PriorityPolicy {
  return {
    ...noMemory,
    name: 'slo-deadline',
    prioritise({ sloTargetUs, sloClass, arrivalUs }) {
      const own = byClass.of(sloClass);
      const targetUs = sloTargetUs > 0 ? sloTargetUs : (ownNumber(targetsUs, sloClass) ?? 0);
      // without a target it is due in an hour, later than any other
      const due = targetUs > 0 ? arrivalUs + targetUs : arrivalUs + 3_600_000_000;
      const rank = Math.round(due - own * classWeightUs);
      const hints = { sheddable: own < 0, dueUs: targetUs > 0 ? due : 0 };
      return { score: -rank, rank, hints };
    },
  };
}

/**
 * The class, less what the tenant has in flight beyond a fair share of all: one tenant's flood does not push
 * others of its class back.
 */
function fairSharePriority(byClass: SloPriorities, penaltyPerRequest: number, most: number): PriorityPolicy {
  return {
    ...noMemory,
    name: 'fair-share',
    prioritise(request, router) {
      const own = byClass.of(request.sloClass);
      const tenants = Math.max(1, router.tenants.length);
      const beyond = router.tenant(request.tenantId).activeRequests - router.global.inFlight / tenants;
      const score = own - Math.min(most, Math.max(0, beyond * penaltyPerRequest));
      const hints = { sheddable: own < 0, dueUs: dueUs(request) };
      return { score, rank: Math.round(RANKS_A_STEP * (byClass.highest - score)), hints };
    },
  };
}

//  The contract.

export interface PriorityPolicy extends NamedPolicy {
  /** Deterministic; changes none of its arguments. */
  prioritise(request: RequestView, router: RouterState): RequestPriority;
}

//  Urgency of the SLO classes. Negative ones may be shed. Unknown and empty names count as standard.

/** Upstream's. */
const defaultSloPriorities: Readonly<Record<string, number>> = {
  critical: 4,
  standard: 3,
  batch: -1,
  sheddable: -2,
  background: -3,
};

export class SloPriorities {
  readonly #byClass: Readonly<Record<string, number>>;
  readonly #standard: number;
  /** The highest of all classes and of the default. */
  readonly highest: number;

  /** @param overrides priorities of classes that differ from upstream's, or of other classes */
  constructor(overrides: Readonly<Record<string, number>> = {}) {
    checkInputs({ overrides }, { overrides: is.optional(is.object()) });
    this.#byClass = { ...defaultSloPriorities, ...overrides };
    this.#standard = this.#byClass.standard;
    this.highest = Math.max(this.#standard, ...Object.values(this.#byClass));
  }

  of(sloClass: string): number {
    return ownNumber(this.#byClass, sloClass) ?? this.#standard;
  }
}

//  Priority policies by name.

const priorityRule: NumberRule = { kind: 'number', default: 0, min: -100, max: 100, integer: true };
/** Priorities of SLO classes that differ from upstream's. */
const priorities = { kind: 'numbers', default: {}, each: priorityRule } as const;

interface PriorityEntry extends PolicyEntry<PriorityPolicy> {
  /** Set where all requests get the same rank, so that a scheduler cannot go by it. */
  readonly ranksAlike?: boolean;
}

export const priorityPolicies: Registry<PriorityPolicy, PolicyWorld, PriorityEntry> = new Registry(
  'priority',
  [
    {
      name: 'slo-class',
      readsKeys: false,
      readsReports: false,
      about: 'by SLO class, as upstream',
      parameters: { priorities },
      make: (p) => new SloClassPriority(new SloPriorities(p.numbers('priorities'))),
    },
    {
      name: 'constant',
      readsKeys: false,
      readsReports: false,
      about: 'all alike',
      ranksAlike: true,
      parameters: { priorities, score: { kind: 'number', default: 0 } },
      make: (p) => constantPriority(new SloPriorities(p.numbers('priorities')), p.number('score')),
    },
    {
      name: 'slo-deadline',
      readsKeys: false,
      readsReports: false,
      about: 'earliest due first, with a credit for the class',
      parameters: {
        priorities,
        targetsUs: { kind: 'numbers', default: {}, each: { kind: 'number', default: 0, above: 0 } },
        classWeightUs: { kind: 'number', default: 1_000_000, min: 0, max: 1e12 },
      },
      make: (p) =>
        deadlinePriority(
          new SloPriorities(p.numbers('priorities')),
          p.numbers('targetsUs'),
          p.number('classWeightUs'),
        ),
    },
    {
      name: 'fair-share',
      readsKeys: false,
      readsReports: false,
      about: 'by SLO class, less for tenants with more in flight than their share',
      parameters: {
        priorities,
        penaltyPerRequest: { kind: 'number', default: 0.1, min: 0, max: 100 },
        most: { kind: 'number', default: 1, min: 0, max: 100 },
      },
      make: (p) =>
        fairSharePriority(
          new SloPriorities(p.numbers('priorities')),
          p.number('penaltyPerRequest'),
          p.number('most'),
        ),
    },
  ],
);
