/**
 * The seam between search and simulation: what an evaluator is asked, what it answers for each bundle, and
 * the suites of cases that it runs.
 */

import { requireShapes } from '../../runtime/options.ts';
import type { DeploymentSpec } from '../../simulate/spec.ts';
import type { PolicyBundle, PolicySlot } from '../bundle/policyBundle.ts';
import type { Scoring } from './objectives.ts';

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
  /** One figure, more is better. With an error it is below the figure of every bundle that ran. */
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

// Settings: the cases of one workload and one model of time, which differ by their seeds only.

/** `shared-prefixes/roofline/7` without its seed. */
export function settingOf(caseId: string): string {
  requireShapes({ caseId }, { caseId: 'text' });
  return caseId.split('/').slice(0, -1).join('/');
}

/** Mean score in each setting, in the order in which settings first come. */
export function meansBySetting(
  cases: readonly { readonly id: string; readonly score: number }[],
): Readonly<Record<string, number>> {
  requireShapes({ cases }, { cases: [{ id: 'text', score: 'number' }] });
  const sums = new Map<string, { sum: number; count: number }>();
  for (const { id, score } of cases) {
    const entry = sums.get(settingOf(id)) ?? { sum: 0, count: 0 };
    sums.set(settingOf(id), { sum: entry.sum + score, count: entry.count + 1 });
  }
  return Object.fromEntries([...sums].map(([setting, { sum, count }]) => [setting, sum / count]));
}

// Suites: which cases a bundle is judged by, as plain data.

/** One simulation. */
export interface SuiteCase {
  /** Workload, model of time, seed. */
  readonly id: string;
  /** What is simulated, without its policies and its seed. */
  readonly deployment: DeploymentSpec;
  readonly seed: number;
  /**
   * Largest relative change of rate and lengths, drawn from the seed: 0.2 is up to 20% up or down. 0 for
   * none.
   */
  readonly perturbation: number;
}

export interface EvaluationPlan {
  readonly suites: Readonly<Record<SuiteName, readonly SuiteCase[]>>;
  readonly scoring: Scoring;
  /** What gains are measured against. */
  readonly baseline: PolicyBundle;
  /** What a search changes where it is told of nothing else. */
  readonly slots: readonly PolicySlot[];
}

/** Suites by name, in the order in which they are used. */
export const suiteNames: readonly SuiteName[] = ['train', 'validation', 'hidden'];
