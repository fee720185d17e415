/** Suites: which cases a bundle is judged by, as plain data. */

import type { PolicyBundle, PolicySlot } from '../bundle/index.ts';
import type { SuiteName } from './evaluation.ts';
import type { Scoring } from './objectives.ts';

/** One simulation. */
export interface SuiteCase {
  /** Workload, model of time, seed. */
  readonly id: string;
  /** Arguments of `tierkv simulate` without its policies and its seed. */
  readonly args: readonly string[];
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
