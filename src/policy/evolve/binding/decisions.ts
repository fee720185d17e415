/** From the numbers of a program or tree to the decisions of a stage. */

import type { StateVisitor } from '../../../runtime/snapshot.ts';
import type { AdmissionDecision, RequestPriority, RequestView } from '../../../sim/control/policy.ts';
import type { SloPriorities } from '../../../sim/control/priority.ts';
import type { RoutingContext } from '../../../sim/control/routing/routingPolicy.ts';
import { type Scorer, scorers } from '../../../sim/control/routing/scorers.ts';
import { PolicyError } from '../../sandbox/program.ts';
import { type MemoryName, memoryOf } from '../features/instance.ts';

/** Steps of a rank for a score of 1: ranks of schedulers are 32-bit integers. */
const RANK_STEPS = 1024;
const RANK_LIMIT = 2 ** 31;
/** Longest delay: a day. */
const DELAY_MAX_US = 86_400_000_000;

/**
 * A delay in whole microseconds, at least one.
 * @throws PolicyError invalid_decision for one below 0, which would be before now
 */
export function delayBy(
  amount: number,
  { id }: RequestView,
  nowUs: number,
  reason: string,
): AdmissionDecision {
  if (amount >= 0) {
    const durationUs = Math.min(DELAY_MAX_US, Math.max(1, Math.ceil(amount)));
    return { verdict: 'delay', durationUs, reason };
  }
  throw new PolicyError('invalid_decision', `the delay is ${amount} µs. Give one of at least 0`, {
    path: 'admission',
    requestId: id,
    simTimeUs: nowUs,
  });
}

/** The priority of a score. The class of a request alone decides whether it may be shed. */
export function priorityOf(request: RequestView, score: number, classes: SloPriorities): RequestPriority {
  const dueUs = request.sloTargetUs > 0 ? request.arrivalUs + request.sloTargetUs : 0;
  const hints = { sheddable: classes.of(request.sloClass) < 0, dueUs };
  return { score, rank: rankOf(-score * RANK_STEPS), hints };
}

/** The nearest finite number, 0 without a sign. */
export function finiteRank(value: number): number {
  return Math.min(Number.MAX_VALUE, Math.max(-Number.MAX_VALUE, value)) + 0;
}

/** The nearest integer that a scheduler takes as a rank. */
export function rankOf(value: number): number {
  return Math.round(Math.min(RANK_LIMIT, Math.max(-RANK_LIMIT, value))) + 0;
}

//  The router's memory of its own decisions, as far as a policy reads it.

export class RouterMemory {
  readonly #scorers: ReadonlyMap<MemoryName, { readonly scorer: Scorer; values: Float64Array }>;

  constructor(names: readonly MemoryName[]) {
    this.#scorers = new Map(
      // these scorers do not use the tokens of a block
      names.map((name) => [
        name,
        { scorer: scorers.make({ policy: name }, { blockTokens: 0 }), values: new Float64Array(16) },
      ]),
    );
  }

  /** The memories behind these features of instances. */
  static of(features: readonly string[]): RouterMemory {
    const wanted = new Set(
      features.filter((name) => Object.hasOwn(memoryOf, name)).map((name) => memoryOf[name]),
    );
    return new RouterMemory([...wanted]);
  }

  /** Scores all candidates; called before a decision. */
  ask(context: RoutingContext): void {
    const count = context.candidates.length;
    for (const entry of this.#scorers.values()) {
      if (entry.values.length < count) entry.values = new Float64Array(2 * count);
      entry.scorer.score(context, entry.values);
    }
  }

  /** The memory's score of the candidate, in [0, 1]; 0 for a memory that is not read. */
  of(name: MemoryName, candidate: number): number {
    return this.#scorers.get(name)?.values[candidate] ?? 0;
  }

  routed(context: RoutingContext, instance: number): void {
    for (const { scorer } of this.#scorers.values()) scorer.routed?.(context, instance);
  }

  removed(instance: number): void {
    for (const { scorer } of this.#scorers.values()) scorer.removed?.(instance);
  }

  visitState(visitor: StateVisitor): void {
    for (const { scorer } of this.#scorers.values()) scorer.visitState(visitor);
  }
}
