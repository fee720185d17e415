/** What comes of the evaluation of one bundle, and who gives it: the seam between search and simulation. */

import type { PolicyBundle } from '../bundle/policyBundle.ts';

/**
 * A suite of workloads with seeds. Search sees the first, chooses by the second, and is judged by the third.
 */
export type SuiteName = 'train' | 'validation' | 'hidden';

/** Why a bundle has no score. */
export interface EvaluationError {
  /** A kind of `PolicyError`, or `infrastructure_timeout`. */
  readonly kind: string;
  readonly message: string;
  readonly line?: number;
}

/** One workload of a suite, with its seed. */
export interface CaseResult {
  /** Workload, model of time, seed: `shared-prefixes/roofline/7`. */
  readonly id: string;
  /** As `Evaluation.score`, of this case alone; 0 is as good as the baseline. */
  readonly score: number;
  readonly objectives: readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
}

export interface Evaluation {
  /** Content hash of the bundle without name, generation, parent and mutations. */
  readonly policyId: string;
  /** One figure, more is better; lower than that of any bundle that ran where there is an error. */
  readonly score: number;
  /** A figure for each objective, in the order of the objectives, each turned so that more is better. */
  readonly objectives: readonly number[];
  /** Raw metrics by name, means over the cases. The same names with an error, all 0 then. */
  readonly metrics: Readonly<Record<string, number>>;
  /** In the order of the suite; none where there is an error. */
  readonly cases?: readonly CaseResult[];
  readonly error?: EvaluationError;
}

export interface Evaluator {
  /** Names of what `Evaluation.objectives` lists. */
  readonly objectiveNames: readonly string[];
  /** Ids of the cases of a suite: workload, model of time, seed. */
  caseIds(suite: SuiteName): readonly string[];
  /**
   * Scores bundles, several at once on worker threads; answers stand in the order asked.
   * @param cases ids of those to run; default: all of the suite
   */
  evaluate(
    bundles: readonly PolicyBundle[],
    suite: SuiteName,
    signal?: AbortSignal,
    cases?: readonly string[],
  ): Promise<readonly Evaluation[]>;
}
