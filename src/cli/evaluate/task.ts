/** What a worker is asked, and what it answers. */

import type { BoundBundle } from '../../evolve/binding/index.ts';
import type { PolicyBundle } from '../../evolve/bundle/index.ts';
import type { RawMetrics, SuiteCase } from '../../evolve/fitness/index.ts';
import { runCase } from './runCase.ts';

export interface Task {
  /** As `readBundle` returns it. */
  readonly bundle: PolicyBundle;
  readonly case: SuiteCase;
}

export interface TaskResult {
  readonly metrics: RawMetrics;
}

export function runTask(bound: BoundBundle, task: Task): TaskResult {
  const { metrics } = runCase(bound, task.case);
  return { metrics };
}
