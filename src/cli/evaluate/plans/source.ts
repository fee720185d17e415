/** What an evaluation plan is written as: workloads, models of time and seeds, before they are cases. */

import type { PolicyBundle, PolicySlot } from '../../../evolve/bundle/index.ts';
import type { Scoring, SuiteName } from '../../../evolve/fitness/index.ts';

/** What a suite is made of: every workload with every model of time and seed. */
export interface SuiteSource {
  readonly seeds: readonly number[];
  readonly perturbation: number;
}

export interface PlanSource {
  /** Paths of specifications, seen from `folder`. */
  readonly workloads: readonly string[];
  readonly latencyModels: readonly string[];
  /** More arguments of `tierkv simulate`, for all cases. */
  readonly args: readonly string[];
  readonly suites: Readonly<Record<SuiteName, SuiteSource>>;
  readonly scoring: Scoring;
  readonly baseline: PolicyBundle;
  /** Those that a search changes where it is told of none. */
  readonly slots: readonly PolicySlot[];
}
