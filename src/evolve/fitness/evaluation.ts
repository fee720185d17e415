/** What comes of the evaluation of one bundle, and who gives it: the seam between search and simulation. */

import type { PolicyBundle } from '../bundle/policyBundle.ts';

/** A suite of workloads with seeds. Search sees the first, chooses by the second, and is judged by the third. */
export type SuiteName = 'train' | 'validation' | 'hidden';

/** Why a bundle has no score. */
export interface EvaluationError {
  /** A kind of `PolicyError`, or `infrastructure_timeout`. */
  readonly kind: string;
  readonly message: string;
  readonly line?: number;
}

export interface Evaluation {
  /** Content hash of the bundle without name, generation, parent and mutations. */
  readonly policyId: string;
  /** One figure, more is better; lower than that of any bundle that ran where there is an error. */
  readonly score: number;
  /** A figure for each objective, in the order of the objectives, each turned so that more is better. */
  readonly objectives: readonly number[];
  /** Raw metrics by name. */
  readonly metrics: Readonly<Record<string, number>>;
  readonly error?: EvaluationError;
}

export interface Evaluator {
  /** Names of what `Evaluation.objectives` lists. */
  readonly objectiveNames: readonly string[];
  /** Scores bundles, several at once on worker threads; answers stand in the order asked. */
  evaluate(
    bundles: readonly PolicyBundle[],
    suite: SuiteName,
    signal?: AbortSignal,
  ): Promise<readonly Evaluation[]>;
}
