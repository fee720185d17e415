/**
 * The metrics of a run, or of one of its instances, under upstream's names and by its formulas. Floats are
 * formed in the same order of operations, so that equal runs give equal bits.
 */

import type { Instance } from '../../instance/index.ts';
import {
  countedMeanMs,
  countedPercentileMs,
  meanMs,
  percentileMs,
  type RequestTable,
  Status,
  type TargetsByClass,
  ValueCounts,
} from '../../metrics/index.ts';
import { type Goodput, goodputOf } from './goodput.ts';
import { type RequestRow, requestRows } from './requestRows.ts';

export interface MetricsOutput {
  readonly instance_id: string;
  readonly completed_requests: number;
  readonly still_queued: number;
  readonly still_running: number;
  readonly injected_requests: number;
  readonly total_input_tokens: number;
  readonly total_output_tokens: number;
  readonly vllm_estimated_duration_s: number;
  readonly responses_per_sec: number;
  readonly tokens_per_sec: number;
  readonly e2e_mean_ms: number;
  readonly e2e_p90_ms: number;
  readonly e2e_p95_ms: number;
  readonly e2e_p99_ms: number;
  readonly ttft_mean_ms: number;
  readonly ttft_p90_ms: number;
  readonly ttft_p95_ms: number;
  readonly ttft_p99_ms: number;
  readonly itl_mean_ms: number;
  readonly itl_p90_ms: number;
  readonly itl_p95_ms: number;
  readonly itl_p99_ms: number;
  readonly scheduling_delay_p99_ms: number;
  readonly preemption_count: number;
  /** Upstream's figure: the plain mean over instances, an idle one as 0. `cacheMetrics` has hits by lookups. */
  readonly cache_hit_rate: number;
  readonly dropped_unservable: number;
  readonly length_capped_requests: number;
  readonly timed_out_requests: number;
  readonly requests: readonly RequestRow[];
  /** Where targets were given. */
  readonly goodput_rps?: number;
  readonly slo_attainment?: number;
  readonly per_class?: Goodput['per_class'];
}

/** Share of blocks of one instance that requests found rather than computed; 0 before any. */
export function hitRateOf(instance: Instance): number {
  const { hits, openedBlocks } = instance.engine.counters;
  const found = hits.reduce((sum, count) => sum + count, 0);
  return found + openedBlocks === 0 ? 0 : found / (found + openedBlocks);
}

/** Rows of the scope: those of one instance, or all. */
function rowsOf(table: RequestTable, only: number | undefined): number[] {
  const rows: number[] = [];
  for (let row = 0; row < table.size; row++) {
    if (only === undefined || table.instance[row] === only) rows.push(row);
  }
  return rows;
}

/** The known values of a column, sorted. */
function known(column: Float64Array, rows: readonly number[]): Float64Array {
  const values = new Float64Array(rows.length);
  let count = 0;
  for (const row of rows) if (column[row] >= 0) values[count++] = column[row];
  return values.slice(0, count).sort();
}

/** Metrics of the whole run, with goodput where there are targets. */
export function clusterMetrics(
  table: RequestTable,
  instances: readonly Instance[],
  targets: TargetsByClass = {},
  withRows: boolean = true,
): MetricsOutput {
  const metrics = metricsOutput(table, instances, 'cluster', undefined, withRows);
  const goodput = goodputOf(table, targets, metrics.vllm_estimated_duration_s);
  return goodput === undefined ? metrics : { ...metrics, ...goodput };
}

/**
 * Metrics of the whole run, or of the instance `only`.
 * @param id `cluster`, or the instance's
 * @param withRows whether `requests` is filled; an object a request, it takes more memory than all the rest
 */
export function metricsOutput(
  table: RequestTable,
  instances: readonly Instance[],
  id: string,
  only?: number,
  withRows: boolean = true,
): MetricsOutput {
  const scope = only === undefined ? instances : [instances[only]];
  const rows = rowsOf(table, only);
  const sum = (pick: (instance: Instance) => number): number =>
    scope.reduce((total, instance) => total + pick(instance), 0);
  const counted = (status: Status): number =>
    rows.reduce((total, row) => total + (table.status[row] === status ? 1 : 0), 0);

  const completed = sum(({ counters }) => counters.completed);
  const queued = counted(Status.QUEUED);
  // upstream counts a request whose KV is on its way to its decode instance as running
  const running = counted(Status.RUNNING) + counted(Status.HANDED_OFF);
  const unservable = sum(({ counters }) => counters.unservable);
  const timedOut = sum(({ counters }) => counters.timedOut);
  const outputTokens = sum(({ counters }) => counters.outputTokens);
  const durationS = Math.max(0, ...scope.map(({ endUs }) => endUs)) / 1e6;
  const perS = (count: number): number => (durationS > 0 ? count / durationS : 0);

  const e2e = known(table.e2eUs, rows);
  const ttft = known(table.firstTokenUs, rows);
  const delay = known(table.schedulingDelayUs, rows);
  let gaps = scope.length === 1 ? scope[0].times.gaps : new ValueCounts();
  if (scope.length > 1) {
    gaps = new ValueCounts();
    for (const { times } of scope) gaps.addAll(times.gaps);
  }

  return {
    instance_id: id,
    completed_requests: completed,
    still_queued: queued,
    still_running: running,
    injected_requests: completed + queued + running + unservable + timedOut,
    total_input_tokens: sum(({ counters }) => counters.inputTokens),
    total_output_tokens: outputTokens,
    vllm_estimated_duration_s: durationS,
    responses_per_sec: perS(completed),
    tokens_per_sec: perS(outputTokens),
    e2e_mean_ms: meanMs(e2e),
    e2e_p90_ms: percentileMs(e2e, 90),
    e2e_p95_ms: percentileMs(e2e, 95),
    e2e_p99_ms: percentileMs(e2e, 99),
    ttft_mean_ms: meanMs(ttft),
    ttft_p90_ms: percentileMs(ttft, 90),
    ttft_p95_ms: percentileMs(ttft, 95),
    ttft_p99_ms: percentileMs(ttft, 99),
    itl_mean_ms: countedMeanMs(gaps),
    itl_p90_ms: countedPercentileMs(gaps, 90),
    itl_p95_ms: countedPercentileMs(gaps, 95),
    itl_p99_ms: countedPercentileMs(gaps, 99),
    scheduling_delay_p99_ms: percentileMs(delay, 99),
    preemption_count: sum(({ engine }) => engine.counters.preemptions),
    cache_hit_rate: sum(hitRateOf) / scope.length,
    dropped_unservable: unservable,
    length_capped_requests: sum(({ counters }) => counters.lengthCapped),
    timed_out_requests: timedOut,
    requests: withRows ? requestRows(table, rows, instances) : [],
  };
}
