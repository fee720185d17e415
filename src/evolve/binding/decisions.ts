/** From the numbers of a program or tree to the decisions of a stage. */

import type { AdmissionDecision, Priority, RequestView, SloPriorities } from '../../sim/control/index.ts';
import { PolicyError } from '../../sim/sandbox/index.ts';

/** Ranks of schedulers are 32-bit integers; a score of 1 is so many of their steps. */
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

/** Whether a request may be shed stays the matter of its class. */
export function priorityOf(request: RequestView, score: number, classes: SloPriorities): Priority {
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
