/**
 * One trial of a plan: a simulation of a deployment, and the figures kept of it. A trial runs on a thread or on another
 * machine, with the same result.
 */

import { TierKVError } from '../../runtime/errors.ts';
import { buildPlanned, runToEnd } from '../../sim/build/build.ts';
import type { BuiltSimulation } from '../../sim/build/built.ts';
import type { SimulationPlan } from '../../sim/build/plan.ts';
import type { SimulationObserver, StepSpan } from '../../sim/cluster/parts.ts';
import type { Instance } from '../../sim/instance/instance.ts';
import { type RequestTable, Status, ValueCounts } from '../../sim/metrics/requestTable.ts';
import { countedMeanMs, countedPercentileMs, meanMs, percentileMs } from '../../sim/metrics/statistics.ts';
import { firstArrivalUs } from '../../sim/report/metricsOutput.ts';
import { cacheMetrics } from '../../sim/report/tierMetrics.ts';
import { type FigureName, figureNames, statisticOf } from './targets.ts';

export interface TrialTask {
  readonly plan: SimulationPlan;
}

export interface TrialResult {
  /** Requests that came, and how many of them were served whole. */
  readonly injected: number;
  readonly completed: number;
  /** Requests that can never be served: longer than the model allows, or than the KV memory of an instance. */
  readonly unservable: number;
  /** Every figure that a target may bound, in milliseconds. */
  readonly figures: Readonly<Record<FigureName, number>>;
  /** Served requests a second, counted from 0, or from the first arrival of a recorded trace. */
  readonly requestsPerS: number;
  readonly outputTokensPerS: number;
  /** Time from arrival until a request joins a batch, 99th percentile in ms. */
  readonly delayP99Ms: number;
  /** Share of looked-up blocks that were found, in all tiers and by tier. */
  readonly hitRate: number;
  readonly hitsByTier: Readonly<Record<string, number>>;
  readonly preemptions: number;
  /** Share of the run in which the busiest instance computed. */
  readonly busyShare: number;
  /** Largest share of KV memory that running requests held at once, over all instances. */
  readonly kvShare: number;
  /** Requests in the system when half of them had come, and when all had come. */
  readonly inFlightHalf: number;
  readonly inFlightEnd: number;
}

/** A result, or why the trial has no result. */
export type TrialAnswer =
  | TrialResult
  | { readonly error: { readonly code?: string; readonly message: string } };

/** The kind of task that a worker does for a plan. */
export interface TrialTasks {
  readonly trial: { readonly task: TrialTask; readonly answer: TrialAnswer };
}

/** Steps between two readings of how full KV memory is: a reading walks over all instances. */
const STEPS_A_LOOK = 16;

class FullestMemory implements SimulationObserver {
  share = 0;
  readonly #instances: () => readonly Instance[];
  #steps = 0;

  constructor(instances: () => readonly Instance[]) {
    this.#instances = instances;
  }

  step(_span: StepSpan): void {
    if (this.#steps++ % STEPS_A_LOOK !== 0) return;
    for (const { engine } of this.#instances()) {
      const [top] = engine.tiers();
      this.share = Math.max(this.share, top.usedBlocks / top.capacityBlocks);
    }
  }
}

export function runTrial({ plan }: TrialTask): TrialAnswer {
  try {
    let memory = new FullestMemory(() => []);
    const run = runToEnd((skipsKeys) => {
      let built: BuiltSimulation | undefined;
      memory = new FullestMemory(() => built?.simulation.instances ?? []);
      built = buildPlanned(plan, { skipsKeys, observer: memory });
      return built;
    });
    return resultOf(run, memory.share);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { error: error instanceof TierKVError ? { code: error.code, message } : { message } };
  }
}

/** The known values of a column, sorted. */
function known(column: Float64Array, size: number): Float64Array {
  return column
    .subarray(0, size)
    .filter((value) => value >= 0)
    .sort();
}

function resultOf({ simulation, opened }: BuiltSimulation, kvShare: number): TrialResult {
  const { table, instances } = simulation;
  const { size } = table;
  const gaps = new ValueCounts();
  for (const { times } of instances) gaps.addAll(times.gaps);
  const columns = { ttft: known(table.firstTokenUs, size), e2e: known(table.e2eUs, size) };
  const figures = {} as Record<FigureName, number>;
  for (const name of figureNames) {
    const { quantity, percentile } = statisticOf(name);
    figures[name] =
      quantity === 'itl'
        ? percentile === undefined
          ? countedMeanMs(gaps)
          : countedPercentileMs(gaps, percentile)
        : percentile === undefined
          ? meanMs(columns[quantity])
          : percentileMs(columns[quantity], percentile);
  }
  const sum = (pick: (instance: Instance) => number): number =>
    instances.reduce((total, instance) => total + pick(instance), 0);
  const startUs = opened.spec === undefined ? firstArrivalUs(table) : 0;
  const lastedUs = Math.max(1, ...instances.map((instance) => instance.endUs - startUs));
  const completed = sum(({ counters }) => counters.completed);
  const { hitRate, hitsByTier } = cacheMetrics(instances);
  const lastUs = size === 0 ? 0 : table.arrivalUs[size - 1];
  return {
    injected: size,
    completed,
    unservable: sum(({ counters }) => counters.unservable),
    figures,
    requestsPerS: completed / (lastedUs / 1e6),
    outputTokensPerS: sum(({ counters }) => counters.outputTokens) / (lastedUs / 1e6),
    delayP99Ms: percentileMs(known(table.schedulingDelayUs, size), 99),
    hitRate,
    hitsByTier,
    preemptions: sum(({ engine }) => engine.counters.preemptions),
    busyShare: Math.max(0, ...instances.map(({ counters }) => counters.busyUs)) / lastedUs,
    kvShare,
    inFlightHalf: inFlight(table, table.arrivalUs[size >> 1] ?? 0),
    inFlightEnd: inFlight(table, lastUs),
  };
}

/** Requests in the system at that time. */
function inFlight(table: RequestTable, atUs: number): number {
  let count = 0;
  for (let row = 0; row < table.size; row++) {
    const arrivedUs = table.arrivalUs[row];
    const isServed = table.status[row] === Status.COMPLETED;
    if (isServed && arrivedUs <= atUs && arrivedUs + table.e2eUs[row] > atUs) count++;
  }
  return count;
}
