/** What a worker is asked, and what it answers. */

import type { BoundBundle } from '../../../evolve/binding/index.ts';
import type { PolicyBundle } from '../../../evolve/bundle/index.ts';
import type { RawMetrics, SuiteCase } from '../../../evolve/fitness/index.ts';
import { type ExplainOptions, type Explanation, explainCase } from './explain.ts';
import { runCase } from './runCase.ts';

export interface Task {
  /** As `readBundle` returns it. */
  readonly bundle: PolicyBundle;
  readonly case: SuiteCase;
  readonly explain?: ExplainOptions;
}

export interface TaskResult {
  readonly metrics: RawMetrics;
  readonly explanation?: Explanation;
}

export function runTask(bound: BoundBundle, { case: suiteCase, explain }: Task): TaskResult {
  if (explain !== undefined) return explainCase(bound, suiteCase, explain);
  return { metrics: runCase(bound, suiteCase).metrics };
}
