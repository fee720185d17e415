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
}
