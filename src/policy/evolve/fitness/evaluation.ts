/** The seam between search and simulation: the evaluator, its answer for each bundle, and its suites of cases. */

import * as is from '../../../runtime/kinds.ts';
import { checkInputs } from '../../../runtime/options.ts';
import type { Deployment } from '../../../sim/description/settings.ts';
import type { PolicyBundle, PolicySlot } from '../bundle/policyBundle.ts';
import type { Scoring } from './objectives.ts';

/** A suite of workloads with seeds. A search sees `train`, chooses by `validation`, and is judged by `hidden`. */
export type SuiteName = 'train' | 'validation' | 'hidden';

/** Why a bundle has no score. */
export interface EvaluationError {
  /** A kind of `PolicyError`, or `infrastructure_timeout`. */
  readonly kind: string;
  readonly message: string;
  readonly line?: number;
}

/** The result of one case of a suite: a workload with its seed. */
export interface CaseResult {
  /** Workload, model of time, seed: `shared-prefixes/roofline/7`. */
  readonly id: string;
  /** Score of this case; 0 is as good as the baseline. */
  readonly score: number;
  readonly objectives: readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
}

/** A policy's worth on a suite: score, objectives, cases. */
export interface Evaluation {
  /** Content hash of the bundle without name, generation, parent and mutations. */
  readonly policyId: string;
  /** Mean score of the cases, more is better. After an error it is below the score of every bundle that ran. */
  readonly score: number;
  /** Gain in each objective, in the order of the objectives; more is better in each. */
  readonly objectives: readonly number[];
  /** Mean of each raw metric over the cases. After an error the same names, with zeros. */
  readonly metrics: Readonly<Record<string, number>>;
  /** In the order of the suite; absent after an error. */
  readonly cases?: readonly CaseResult[];
  readonly error?: EvaluationError;
}

/** Scores policy bundles. */
export interface Evaluator {
  /** Names of the objectives, in the order of `Evaluation.objectives`. */
  readonly objectiveNames: readonly string[];
  /** Ids of the cases of a suite: workload, model of time, seed. */
  caseIds(suite: SuiteName): readonly string[];
  /**
   * Scores bundles, several at once on worker threads. Answers stand in the order of the bundles.
   * @param cases ids of the cases to run; default: the whole suite
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
  checkInputs({ caseId }, { caseId: is.text() });
  return caseId.split('/').slice(0, -1).join('/');
}

/** Mean score in each setting, in the order in which settings first come. */
export function meansBySetting(
  cases: readonly { readonly id: string; readonly score: number }[],
): Readonly<Record<string, number>> {
  checkInputs({ cases }, { cases: is.list(is.fields({ id: is.text(), score: is.number() })) });
  const sums = new Map<string, { sum: number; count: number }>();
  for (const { id, score } of cases) {
    const entry = sums.get(settingOf(id)) ?? { sum: 0, count: 0 };
    sums.set(settingOf(id), { sum: entry.sum + score, count: entry.count + 1 });
  }
  return Object.fromEntries([...sums].map(([setting, { sum, count }]) => [setting, sum / count]));
}

// Suites of cases, as plain data.

/** One simulation. */
export interface SuiteCase {
  /** Workload, model of time, seed. */
  readonly id: string;
  /** The deployment and its workload, without policies and seed. */
  readonly deployment: Deployment;
  readonly seed: number;
  /** Largest relative change of rate and lengths, drawn from the seed: 0.2 is up to 20 % up or down. */
  readonly perturbation: number;
}

/** The cases by which policies are judged: deployments, suites and scoring. */
export interface EvaluationPlan {
  readonly suites: Readonly<Record<SuiteName, readonly SuiteCase[]>>;
  readonly scoring: Scoring;
  /** Gains are measured against it. */
  readonly baseline: PolicyBundle;
  /** Slots that a search changes by default. */
  readonly slots: readonly PolicySlot[];
}

/** Suites by name, in the order in which they are used. */
export const suiteNames: readonly SuiteName[] = ['train', 'validation', 'hidden'];
