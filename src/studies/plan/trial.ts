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
  /** Part of the run that is judged; undefined for all of it. */
  readonly judged?: JudgedTime;
}

/**
 * The part of a run in which its rate is reached: conversations begin over the whole run, and each brings its later rounds only
 * after its pauses.
 */
export interface JudgedTime {
  readonly fromUs: number;
  readonly toUs: number;
}

export interface TrialResult {
  /** Requests that came, and how many of them were served whole. */
  readonly injected: number;
  readonly completed: number;
  /** Requests that can never be served: longer than the model allows, or than the KV memory of an instance. */
  readonly unservable: number;
  /** Requests that came a second, over the time that is judged. */
  readonly arrivalsPerS: number;
  /** Every figure that a target may bound, in milliseconds, of the requests that came in the time that is judged. */
  readonly figures: Readonly<Record<FigureName, number>>;
  /** Served requests a second, counted from 0, from the first arrival of a recorded trace, or over the time that is judged. */
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
  /** Requests in the system when half of the judged ones had come, and when all of these had come. */
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

/** Watches the steps: how full memory gets, and what happens in the time that is judged. */
class StepWatch implements SimulationObserver {
  /** Largest share of KV memory in use. */
  share = 0;
  /** Computing time within the judged time, by instance. */
  readonly busyUs: number[] = [];
  readonly #instances: () => readonly Instance[];
  readonly #judged: JudgedTime | undefined;
  #steps = 0;
  /** Times between tokens that were counted before the judged time, and by its end. */
  #before: ValueCounts | undefined;
  #byEnd: ValueCounts | undefined;

  constructor(instances: () => readonly Instance[], judged: JudgedTime | undefined) {
    this.#instances = instances;
    this.#judged = judged;
  }

  step({ instance, startUs, endUs }: StepSpan): void {
    if (this.#judged !== undefined) {
      const { fromUs, toUs } = this.#judged;
      const within = Math.min(endUs, toUs) - Math.max(startUs, fromUs);
      if (within > 0) this.busyUs[instance] = (this.busyUs[instance] ?? 0) + within;
      if (endUs >= fromUs) this.#before ??= this.#gaps();
      if (startUs >= toUs) this.#byEnd ??= this.#gaps();
    }
    if (this.#steps++ % STEPS_A_LOOK !== 0) return;
    for (const { engine } of this.#instances()) {
      const [top] = engine.tiers();
      this.share = Math.max(this.share, top.usedBlocks / top.capacityBlocks);
    }
  }

  /** Times between tokens in the judged time. */
  judgedGaps(): ValueCounts {
    const gaps = new ValueCounts();
    gaps.addAll(this.#byEnd ?? this.#gaps());
    for (const [value, times] of this.#before?.entries() ?? []) gaps.add(value, -times);
    return gaps;
  }

  #gaps(): ValueCounts {
    const gaps = new ValueCounts();
    for (const { times } of this.#instances()) gaps.addAll(times.gaps);
    return gaps;
  }
}

export function runTrial({ plan, judged }: TrialTask): TrialAnswer {
  try {
    let watch = new StepWatch(() => [], judged);
    const run = runToEnd((skipsKeys) => {
      let built: BuiltSimulation | undefined;
      watch = new StepWatch(() => built?.simulation.instances ?? [], judged);
      built = buildPlanned(plan, { skipsKeys, observer: watch });
      return built;
    });
    return resultOf(run, watch, judged);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { error: error instanceof TierKVError ? { code: error.code, message } : { message } };
  }
}

/** The known values of the rows of a column, sorted. */
function known(column: Float64Array, rows: readonly [from: number, to: number]): Float64Array {
  return column
    .subarray(...rows)
    .filter((value) => value >= 0)
    .sort();
}

/** First row whose request came at that time or later; requests stand in order of their arrival. */
function rowAt({ arrivalUs, size }: RequestTable, atUs: number): number {
  let [low, high] = [0, size];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (arrivalUs[middle] < atUs) low = middle + 1;
    else high = middle;
  }
  return low;
}

function resultOf(
  { simulation, opened }: BuiltSimulation,
  watch: StepWatch,
  judged: JudgedTime | undefined,
): TrialResult {
  const { table, instances } = simulation;
  const { size } = table;
  const rows =
    judged === undefined
      ? ([0, size] as const)
      : ([rowAt(table, judged.fromUs), rowAt(table, judged.toUs)] as const);
  const gaps = watch.judgedGaps();
  const columns = { ttft: known(table.firstTokenUs, rows), e2e: known(table.e2eUs, rows) };
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
  const [firstRow, endRow] = rows;
  const arrived = endRow - firstRow;
  const firstUs = opened.spec === undefined ? firstArrivalUs(table) : 0;
  const lastUs = size === 0 ? 0 : table.arrivalUs[size - 1];
  const startUs = judged?.fromUs ?? firstUs;
  const lastedUs = Math.max(
    1,
    judged === undefined ? Math.max(...instances.map(({ endUs }) => endUs)) - startUs : judged.toUs - startUs,
  );
  const cameUs = Math.max(1, (judged?.toUs ?? lastUs) - startUs);
  const completed = sum(({ counters }) => counters.completed);
  let [servedHere, tokensHere] = [0, 0];
  for (let row = firstRow; row < endRow; row++) {
    if (table.status[row] !== Status.COMPLETED) continue;
    servedHere++;
    tokensHere += table.generatedTokens[row];
  }
  const outputTokens = judged === undefined ? sum(({ counters }) => counters.outputTokens) : tokensHere;
  const { hitRate, hitsByTier } = cacheMetrics(instances);
  const busyUs =
    judged === undefined
      ? instances.map(({ counters }) => counters.busyUs)
      : watch.busyUs.map((us) => us ?? 0);
  const endUs = judged?.toUs ?? lastUs;
  return {
    injected: size,
    completed,
    unservable: sum(({ counters }) => counters.unservable),
    arrivalsPerS: arrived / (cameUs / 1e6),
    figures,
    requestsPerS: (judged === undefined ? completed : servedHere) / (lastedUs / 1e6),
    outputTokensPerS: outputTokens / (lastedUs / 1e6),
    delayP99Ms: percentileMs(known(table.schedulingDelayUs, rows), 99),
    hitRate,
    hitsByTier,
    preemptions: sum(({ engine }) => engine.counters.preemptions),
    busyShare: Math.max(0, ...busyUs) / lastedUs,
    kvShare: watch.share,
    inFlightHalf: inFlight(
      table,
      judged === undefined ? (table.arrivalUs[size >> 1] ?? 0) : (startUs + endUs) / 2,
    ),
    inFlightEnd: inFlight(table, endUs),
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
