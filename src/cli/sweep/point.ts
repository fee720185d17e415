/** One point of a sweep: the simulation of one command line, and what is kept of it. */

import { clusterMetrics } from '../../sim/report/metricsOutput.ts';
import { cacheMetrics, Spread } from '../../sim/report/tierMetrics.ts';
import { simulateArguments } from '../../simulate/arguments.ts';
import { buildSimulation, runToEnd } from '../../simulate/build.ts';
import { factsOf } from '../../simulate/workloadOptions.ts';
import { refuseIdleOptions } from '../simulate/idleOptions.ts';

export interface SweepPoint {
  /** Values of the grid, by option. */
  readonly values: Readonly<Record<string, string>>;
  /** Arguments of `tierkv simulate`. */
  readonly args: readonly string[];
}

export interface PointResult {
  readonly values: Readonly<Record<string, string>>;
  readonly gpus: number;
  readonly completed: number;
  readonly injected: number;
  readonly responsesPerS: number;
  readonly tokensPerS: number;
  readonly ttftMeanMs: number;
  readonly ttftP99Ms: number;
  readonly itlMeanMs: number;
  readonly itlP99Ms: number;
  readonly e2eMeanMs: number;
  readonly e2eP99Ms: number;
  readonly hitRate: number;
  readonly preemptions: number;
  /** What is wrong with how requests were spread over instances. */
  readonly warnings: readonly string[];
}

/** A point that cannot run, and why. */
export interface FailedPoint {
  readonly values: Readonly<Record<string, string>>;
  readonly error: {
    /** Of a `TierKVError`: the point is at fault. Absent where tierkv or the machine is. */
    readonly code?: string;
    readonly field?: string;
    readonly message: string;
  };
}

export type SweptPoint = PointResult | FailedPoint;

export function hasRun(point: SweptPoint): point is PointResult {
  return !('error' in point);
}

export function runPoint({ values, args }: SweepPoint): PointResult {
  const { workload, options, command } = simulateArguments(args);
  let spread = new Spread();
  const { simulation, gpus, scaling } = runToEnd((skipsKeys) => {
    spread = new Spread();
    const built = buildSimulation(workload, options, { skipsKeys, observer: spread });
    refuseIdleOptions(command, options, factsOf(built.opened));
    return built;
  });
  const { table, instances } = simulation;
  const metrics = clusterMetrics(table, instances, {}, false);
  return {
    values,
    gpus: gpus(),
    completed: metrics.completed_requests,
    injected: table.size,
    responsesPerS: metrics.responses_per_sec,
    tokensPerS: metrics.tokens_per_sec,
    ttftMeanMs: metrics.ttft_mean_ms,
    ttftP99Ms: metrics.ttft_p99_ms,
    itlMeanMs: metrics.itl_mean_ms,
    itlP99Ms: metrics.itl_p99_ms,
    e2eMeanMs: metrics.e2e_mean_ms,
    e2eP99Ms: metrics.e2e_p99_ms,
    hitRate: cacheMetrics(instances).hitRate,
    preemptions: metrics.preemption_count,
    warnings: spread.warnings(instances, new Set(scaling.map(({ configId }) => configId))),
  };
}
