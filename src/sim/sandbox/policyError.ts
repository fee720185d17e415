/**
 * What can go wrong with a policy, by kind. A kind tells a search framework who is at fault: the text of the
 * policy, its behaviour in one call, or the machine that ran it.
 */

import { type ErrorFacts, TierKVError } from '../../runtime/errors.ts';

/**
 * - `compile`: the text is no program of its language.
 * - `contract`: it is one, but lacks what its slot asks for.
 * - `step_limit`, `memory_limit`: one call used up its budget.
 * - `policy_runtime`: a call failed, for example by a division by zero.
 * - `invalid_decision`: a call returned what its slot does not accept.
 * - `frozen_region_edited`: text outside the region that a search may edit has changed.
 * - `infrastructure_timeout`: the machine was too slow. It says nothing about the policy.
 */
export const policyErrorKinds = [
  'compile',
  'contract',
  'step_limit',
  'memory_limit',
  'policy_runtime',
  'invalid_decision',
  'frozen_region_edited',
  'infrastructure_timeout',
] as const;

export type PolicyErrorKind = (typeof policyErrorKinds)[number];

export interface PolicyErrorFacts extends ErrorFacts {
  /** Request whose decision was asked for. */
  requestId?: string;
  /** Simulated time of the call, in microseconds. */
  simTimeUs?: number;
}

export class PolicyError extends TierKVError {
  readonly kind: PolicyErrorKind;
  readonly requestId: string | undefined;
  readonly simTimeUs: number | undefined;
  /** What is wrong, without the place. */
  readonly problem: string;

  constructor(kind: PolicyErrorKind, problem: string, facts: PolicyErrorFacts = {}) {
    super('TKV_INPUT', `${kind}: ${place(facts)}${problem}`, facts);
    this.kind = kind;
    this.problem = problem;
    this.requestId = facts.requestId;
    this.simTimeUs = facts.simTimeUs;
  }

  /** Errors of policies only, also of another copy of this package. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    if (!(value instanceof TierKVError)) return false;
    const kinds: readonly string[] = policyErrorKinds;
    return kinds.includes(String((value as Partial<PolicyError>).kind));
  }

  /** The same error with the request and the simulated time at which it happened. */
  at(requestId: string, simTimeUs: number): PolicyError {
    return new PolicyError(this.kind, this.problem, {
      ...(this.path === undefined ? {} : { path: this.path }),
      ...(this.line === undefined ? {} : { line: this.line }),
      requestId,
      simTimeUs,
      cause: this,
    });
  }
}

function place({ path, line, requestId, simTimeUs }: PolicyErrorFacts): string {
  const parts = [
    ...(path === undefined ? [] : [path]),
    ...(line === undefined ? [] : [`line ${line}`]),
    ...(requestId === undefined ? [] : [`request ${requestId}`]),
    ...(simTimeUs === undefined ? [] : [`at ${simTimeUs} µs`]),
  ];
  return parts.length === 0 ? '' : `${parts.join(', ')}: `;
}
