/** What the stages of the control plane answer, one after the other. */

/** What admission says to a request. A delayed one comes to admission again after `durationUs`. */
export type AdmissionDecision =
  | { readonly verdict: 'admit' }
  | { readonly verdict: 'reject'; readonly reason: string }
  | { readonly verdict: 'delay'; readonly durationUs: number; readonly reason: string };

export const ADMIT: AdmissionDecision = { verdict: 'admit' };

export interface PriorityHints {
  /** Whether admission and gateway may turn it away under load. */
  readonly sheddable: boolean;
  /** When its first token should be there, absolute in microseconds; 0 for no target. */
  readonly dueUs: number;
}

export interface Priority {
  /** Higher is more urgent. */
  readonly score: number;
  /** What the instance's scheduler is told, a whole number: lower is more urgent. */
  readonly rank: number;
  readonly hints: PriorityHints;
}

export interface CandidateScore {
  readonly instance: number;
  readonly id: string;
  readonly score: number;
  /** By scorer: its weighted part of the score. Empty for policies that do not add up scores. */
  readonly scoreBreakdown: Readonly<Record<string, number>>;
}

export interface FilteredOut {
  readonly instance: number;
  readonly id: string;
  readonly filter: string;
}

/** A routing decision that is taken out of the policies' hands, or a part of it. */
export interface ForcedRouting {
  /** The instance that gets the request, or its output. Default: what the policy chooses. */
  readonly target?: number;
  /** The instance that computes the prompt for it, -1 for no hand-off. Default: what the policies choose. */
  readonly prefillInstance?: number;
}

/** The configurations that a request was routed to before, and stays in when it is routed again. */
export interface Stay {
  readonly target: string;
  /** Of the instance that was to compute its prompt for another one; '' without a hand-off. */
  readonly prefill: string;
}

export interface RoutingDecision {
  /** Number of the instance that the request runs on; with a hand-off the one that decodes. */
  readonly target: number;
  /** Where its prompt is computed, -1 where that is `target`. */
  readonly prefillInstance: number;
  /** Where it goes on after a hand-off, -1 without one. */
  readonly decodeInstance: number;
  readonly reason: string;
  /** By instance, in order of their numbers; empty where details are not asked for. */
  readonly scores: readonly CandidateScore[];
  readonly filteredOut: readonly FilteredOut[];
  /** The best others, the best first; ties to the lowest instance. */
  readonly topKCandidates: readonly CandidateScore[];
  /** Leading blocks that the router believed to be cached where the prompt is computed. */
  readonly expectedBlocks: number;
  /** Instances that could have been `target`: of the model and role, routable. Empty where details are not asked for. */
  readonly couldTake: readonly number[];
}
