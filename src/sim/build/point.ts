/** One point of a sweep: its simulation, and the figures kept of it. */

import { TierKVError } from '../../runtime/errors.ts';
import type { Deployment } from '../description/settings.ts';
import { clusterMetrics, servedRates } from '../report/metricsOutput.ts';
import { cacheMetrics, Spread } from '../report/tierMetrics.ts';
import { buildPlanned, runToEnd } from './build.ts';
import { refuseIdle } from './needs.ts';
import { planSimulation, type SimulationPlan } from './plan.ts';
import { stepsLine } from './runText.ts';
import { rateWarnings, requireRoom } from './simulate.ts';

export interface SweepPoint {
  /** Values of the grid, by option. */
  readonly values: Readonly<Record<string, string>>;
  /** Reads what the point asks for. @throws {TierKVError} for a setting that is wrong */
  readonly read: () => Deployment;
}

export interface PointResult {
  readonly values: Readonly<Record<string, string>>;
  /** Lines about the model of time, one a machine. */
  readonly steps: readonly string[];
  readonly gpus: number;
  readonly completed: number;
  readonly injected: number;
  /** Responses a second, counted from 0, or from the first arrival of a recorded trace. */
  readonly responsesPerS: number;
  readonly tokensPerS: number;
  /** Milliseconds; 0 where no request was measured. */
  readonly ttftMeanMs: number;
  readonly ttftP99Ms: number;
  readonly itlMeanMs: number;
  readonly itlP99Ms: number;
  readonly e2eMeanMs: number;
  readonly e2eP99Ms: number;
  readonly hitRate: number;
  readonly preemptions: number;
  /** Warnings about how requests were spread over instances. */
  readonly warnings: readonly string[];
}

/** A point that cannot run, with its error. */
export interface FailedPoint {
  readonly values: Readonly<Record<string, string>>;
  readonly error: {
    /** Code of a `TierKVError`, which means that the point is at fault; absent for faults of tierkv or the machine. */
    readonly code?: string;
    readonly field?: string;
    readonly message: string;
  };
}

export type SweptPoint = PointResult | FailedPoint;

export function hasRun(point: SweptPoint): point is PointResult {
  return !('error' in point);
}

/** A point as a thread runs it. */
export interface PlannedPoint {
  readonly values: SweepPoint['values'];
  readonly plan: SimulationPlan;
}

/** @throws {TierKVError} for settings that are wrong, or cannot act beside the others */
/** The kind of task that a worker does for a sweep. */
export interface PointTasks {
  readonly point: { readonly task: PlannedPoint; readonly answer: SweptPoint };
}

export function planPoint({ values, read }: SweepPoint): PlannedPoint {
  const plan = planSimulation(read());
  refuseIdle(plan, plan.workload.kind === 'trace');
  return { values, plan };
}

/** The point with its error in place of a result. */
export function failedPoint(values: SweepPoint['values'], error: unknown): FailedPoint {
  const message = error instanceof Error ? error.message : String(error);
  if (!(error instanceof TierKVError)) return { values, error: { message } };
  const { code, field } = error;
  return { values, error: { code, message, ...(field === undefined ? {} : { field }) } };
}

/** The same with the error of a point that cannot run. */
export function answerPoint(point: PlannedPoint): SweptPoint {
  try {
    return runPoint(point);
  } catch (error) {
    return failedPoint(point.values, error);
  }
}

export function runPoint({ values, plan }: PlannedPoint): PointResult {
  let spread = new Spread();
  const built = runToEnd((skipsKeys) => {
    spread = new Spread();
    return buildPlanned(plan, { skipsKeys, observer: spread });
  });
  requireRoom(built);
  const { simulation, gpus, scaling, machine, pools, opened } = built;
  const { table, instances } = simulation;
  const metrics = clusterMetrics(table, instances, {}, false);
  const served = servedRates(table, metrics, opened.spec === undefined);
  return {
    values,
    steps: [...new Set((pools ?? [{ machine }]).map((pool) => stepsLine(pool.machine)))],
    gpus: gpus(),
    completed: metrics.completed_requests,
    injected: table.size,
    responsesPerS: served.requestsPerS,
    tokensPerS: served.outputTokensPerS,
    ttftMeanMs: metrics.ttft_mean_ms,
    ttftP99Ms: metrics.ttft_p99_ms,
    itlMeanMs: metrics.itl_mean_ms,
    itlP99Ms: metrics.itl_p99_ms,
    e2eMeanMs: metrics.e2e_mean_ms,
    e2eP99Ms: metrics.e2e_p99_ms,
    hitRate: cacheMetrics(instances).hitRate,
    preemptions: metrics.preemption_count,
    warnings: [
      ...plan.notices,
      ...rateWarnings(built),
      ...spread.warnings(instances, new Set(scaling.map(({ configId }) => configId))),
    ],
  };
}
