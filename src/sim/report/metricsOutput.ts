/**
 * The metrics of a run, or of one of its instances, under upstream's names and by its formulas: totals,
 * targets, breakdowns by class, tenant and session, and a row a request. Floats are formed in upstream's
 * order of operations, so that equal runs give equal bits.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { Instance } from '../instance/instance.ts';
import { type RequestTable, Status, ValueCounts } from '../metrics/requestTable.ts';
import {
  classOf,
  countedMeanMs,
  countedPercentileMs,
  jainIndex,
  meanMs,
  meetsTargets,
  percentileMs,
  type Summary,
  summarize,
  type Targets,
  type TargetsByClass,
  wasTurnedAway,
} from '../metrics/statistics.ts';

/** Metrics of a run or of one instance, with the names of BLIS. */
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
  /** Requests that their users gave up, where there are any. */
  readonly cancelled_requests?: number;
  /** Loads of LoRA adapters, where there were any. */
  readonly adapter_loads?: number;
  readonly requests: readonly RequestRow[];
  /** Where targets were given. */
  readonly goodput_rps?: number;
  readonly slo_attainment?: number;
  readonly per_class?: Goodput['per_class'];
}

/** Share of blocks of one instance that requests found rather than computed; 0 before any. */
function hitRateOf(instance: Instance): number {
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
  checkInputs(
    { table, instances, targets, withRows },
    {
      table: is.fields({ size: is.number(), arrivalUs: is.bytes() }),
      instances: is.list(is.fields({ number: is.number(), id: is.text() })),
      targets: is.optional(is.object()),
      withRows: is.optional(is.flag()),
    },
  );
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
  checkInputs(
    { table, instances, id, only, withRows },
    {
      table: is.fields({ size: is.number(), arrivalUs: is.bytes() }),
      instances: is.list(is.fields({ number: is.number(), id: is.text() })),
      id: is.text(),
      only: is.optional(is.number()),
      withRows: is.optional(is.flag()),
    },
  );
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
  const cancelled = counted(Status.CANCELLED);
  const adapterLoads = sum(({ engine }) => engine.adapterLoads ?? 0);
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
    injected_requests:
      completed + queued + running + unservable + timedOut + sum(({ counters }) => counters.cancelled),
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
    ...(cancelled === 0 ? {} : { cancelled_requests: cancelled }),
    ...(adapterLoads === 0 ? {} : { adapter_loads: adapterLoads }),
    requests: withRows ? requestRows(table, rows, instances) : [],
  };
}

/** From when on, how long and how fast requests were served. */
export interface ServedRates {
  /** When the first request of a recorded trace came; 0 of a generated workload, whose arrivals begin there. */
  readonly fromS: number;
  /** From then to the end of the last step. */
  readonly lengthS: number;
  readonly requestsPerS: number;
  readonly outputTokensPerS: number;
}

/**
 * A piece of a longer trace begins late: its rates go by the time from its first arrival, where upstream's go by the time
 * from 0 (`responses_per_sec`, `tokens_per_sec`).
 * @param isRecorded whether arrivals were recorded, not generated
 */
export function servedRates(table: RequestTable, metrics: MetricsOutput, isRecorded: boolean): ServedRates {
  checkInputs(
    { table, metrics, isRecorded },
    {
      table: is.fields({ size: is.number(), arrivalUs: is.bytes() }),
      metrics: is.fields({ vllm_estimated_duration_s: is.number(), completed_requests: is.number() }),
      isRecorded: is.flag(),
    },
  );
  const endS = metrics.vllm_estimated_duration_s;
  const fromS = isRecorded ? Math.min(endS, firstArrivalUs(table) / 1e6) : 0;
  const lengthS = endS - fromS;
  const perS = (count: number): number => (lengthS > 0 ? count / lengthS : 0);
  return {
    fromS,
    lengthS,
    requestsPerS: perS(metrics.completed_requests),
    outputTokensPerS: perS(metrics.total_output_tokens),
  };
}

/** When the first request came; 0 without any. */
export function firstArrivalUs(table: RequestTable): number {
  checkInputs({ table }, { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }) });
  let first = Infinity;
  for (let row = 0; row < table.size; row++) first = Math.min(first, table.arrivalUs[row]);
  return first === Infinity ? 0 : first;
}

// How many requests met the targets of their class, by upstream's formulas. Every request that came in counts,
// wherever it ended: one that was turned away has met nothing.

interface ClassGoodput {
  /** Requests of the class that came in, including requests that were turned away. */
  readonly count: number;
  readonly e2e_p99_ms: number;
  readonly goodput_rps: number;
  readonly itl_mean_ms: number;
  readonly slo_attainment: number;
  readonly slo_attainment_by_dim: Readonly<Record<string, number>>;
  readonly ttft_p99_ms: number;
}

interface Goodput {
  readonly goodput_rps: number;
  readonly slo_attainment: number;
  readonly per_class: Readonly<Record<string, ClassGoodput>>;
}

const dimensions = ['e2e', 'itl', 'ttft'] as const;
type Dimension = (typeof dimensions)[number];

function targetOf(targets: Targets, dimension: Dimension): number | undefined {
  return targets[`${dimension}Us`];
}

function measured(table: RequestTable, row: number, dimension: Dimension): number {
  if (dimension === 'e2e') return table.e2eUs[row];
  return dimension === 'ttft' ? table.firstTokenUs[row] : table.meanGapUs(row);
}

/** Goodput over classes with targets; undefined where there are no targets. */
export function goodputOf(
  table: RequestTable,
  targets: TargetsByClass,
  durationS: number,
): Goodput | undefined {
  checkInputs(
    { table, targets, durationS },
    {
      table: is.fields({ size: is.number(), arrivalUs: is.bytes() }),
      targets: is.object(),
      durationS: is.number(),
    },
  );
  const names = Object.keys(targets).sort();
  if (names.length === 0) return undefined;
  const perClass = new Map<string, ClassGoodput>();
  let good = 0;
  let injected = 0;
  for (const name of names) {
    const { result, goodRequests } = ofClass(table, name, targets[name], durationS);
    if (result.count === 0) continue;
    perClass.set(name, result);
    good += goodRequests;
    injected += result.count;
  }
  return {
    goodput_rps: durationS > 0 ? good / durationS : 0,
    slo_attainment: injected === 0 ? 0 : good / injected,
    per_class: Object.fromEntries(perClass),
  };
}

/** Rows in the order in which upstream adds floats up: by their ids as strings. */
function byId(table: RequestTable): number[] {
  const ids = Array.from({ length: table.size }, (_, row) => table.idOf(row));
  return Array.from(ids.keys()).sort((a, b) => (ids[a] < ids[b] ? -1 : 1));
}

function ofClass(
  table: RequestTable,
  name: string,
  targets: Targets,
  durationS: number,
): { result: ClassGoodput; goodRequests: number } {
  const used = dimensions.filter((dimension) => targetOf(targets, dimension) !== undefined);
  const met = used.map(() => 0);
  const ttfts: number[] = [];
  const e2es: number[] = [];
  let count = 0;
  const gaps: number[] = [];
  let goodRequests = 0;
  for (const row of byId(table)) {
    if ((table.originOf(row).sloClass || defaultClass) !== name) continue;
    // whose user gave it up was not failed by the server
    if (table.status[row] === Status.CANCELLED) continue;
    count++;
    if (table.status[row] !== Status.COMPLETED) continue;
    ttfts.push(table.firstTokenUs[row]);
    e2es.push(table.e2eUs[row]);
    gaps.push(table.meanGapUs(row));
    let isGood = true;
    for (const [i, dimension] of used.entries()) {
      const holds = measured(table, row, dimension) <= (targetOf(targets, dimension) ?? 0);
      if (holds) met[i]++;
      else isGood = false;
    }
    if (isGood) goodRequests++;
  }
  const sorted = (values: number[]): Float64Array => Float64Array.from(values).sort();
  const result: ClassGoodput = {
    count,
    e2e_p99_ms: percentileMs(sorted(e2es), 99),
    goodput_rps: durationS > 0 ? goodRequests / durationS : 0,
    itl_mean_ms: meanMs(Float64Array.from(gaps)),
    slo_attainment: count === 0 ? 0 : goodRequests / count,
    slo_attainment_by_dim: Object.fromEntries(used.map((dimension, i) => [dimension, met[i] / count])),
    ttft_p99_ms: percentileMs(sorted(ttfts), 99),
  };
  return { result, goodRequests };
}

// Metrics by SLO class, tenant and session, by upstream's formulas.

interface ClassSummary {
  readonly name: string;
  /** In microseconds; time between tokens as the mean of each request. */
  readonly ttft: Summary;
  readonly itl: Summary;
  readonly e2e: Summary;
}

interface TenantSummary {
  readonly name: string;
  readonly requests: number;
  readonly tokens: number;
}

interface SessionSummary {
  readonly sessions: number;
  /** First rounds, later rounds, and whole sessions, in microseconds. */
  readonly cold: Summary;
  readonly warm: Summary;
  readonly duration: Summary;
}

/** Name that requests without a class have in goodput. */
const defaultClass = 'default';

function groupRows(table: RequestTable, keyOf: (row: number) => string): Map<string, number[]> {
  const groups = new Map<string, number[]>();
  for (let row = 0; row < table.size; row++) {
    const key = keyOf(row);
    const rows = groups.get(key);
    if (rows === undefined) groups.set(key, [row]);
    else rows.push(row);
  }
  return new Map([...groups].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function completedOf(table: RequestTable, rows: readonly number[]): number[] {
  return rows.filter((row) => table.status[row] === Status.COMPLETED);
}

function summaryOf(rows: readonly number[], measure: (row: number) => number): Summary {
  return summarize(Float64Array.from(rows, measure));
}

/** Classes that completed a request, in order of their names; requests without a class are left out. */
export function classSummaries(table: RequestTable): ClassSummary[] {
  checkInputs({ table }, { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }) });
  const groups = groupRows(table, (row) => table.originOf(row).sloClass);
  const summaries: ClassSummary[] = [];
  for (const [name, all] of groups) {
    const rows = completedOf(table, all);
    if (name === '' || rows.length === 0) continue;
    summaries.push({
      name,
      ttft: summaryOf(rows, (row) => table.firstTokenUs[row]),
      itl: summaryOf(rows, (row) => table.meanGapUs(row)),
      e2e: summaryOf(rows, (row) => table.e2eUs[row]),
    });
  }
  return summaries;
}

/**
 * Tenants, and how evenly output tokens went to them. A tenant none of whose requests completed got nothing.
 * @param completedOnly whether such tenants are left out, as upstream has it
 */
export function tenantSummaries(
  table: RequestTable,
  completedOnly: boolean = false,
): { tenants: TenantSummary[]; jain: number } {
  checkInputs(
    { table, completedOnly },
    { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }), completedOnly: is.optional(is.flag()) },
  );
  const groups = groupRows(table, (row) => table.originOf(row).tenantId);
  const tenants: TenantSummary[] = [];
  for (const [name, all] of groups) {
    const rows = completedOf(table, all);
    if (name === '' || (completedOnly && rows.length === 0)) continue;
    const tokens = rows.reduce((sum, row) => sum + table.generatedTokens[row], 0);
    tenants.push({ name, requests: rows.length, tokens });
  }
  return { tenants, jain: jainIndex(tenants.map(({ tokens }) => tokens)) };
}

/** Undefined where the workload has no sessions. */
export function sessionSummary(table: RequestTable): SessionSummary | undefined {
  checkInputs({ table }, { table: is.fields({ size: is.number(), arrivalUs: is.bytes() }) });
  const groups = groupRows(table, (row) => table.sessionOf(row));
  groups.delete('');
  if (groups.size === 0) return undefined;
  const cold: number[] = [];
  const warm: number[] = [];
  const durations: number[] = [];
  for (const rows of groups.values()) {
    let firstUs = Infinity;
    let lastUs = 0;
    for (const row of completedOf(table, rows)) {
      (table.round[row] === 0 ? cold : warm).push(row);
      firstUs = Math.min(firstUs, table.arrivalUs[row]);
      lastUs = Math.max(lastUs, table.arrivalUs[row] + table.e2eUs[row]);
    }
    if (firstUs !== Infinity) durations.push(lastUs - firstUs);
  }
  return {
    sessions: groups.size,
    cold: summaryOf(cold, (row) => table.firstTokenUs[row]),
    warm: summaryOf(warm, (row) => table.firstTokenUs[row]),
    duration: summarize(Float64Array.from(durations)),
  };
}

// The rows of requests of a run, under upstream's names: every request that came to an instance.

interface RequestRow {
  readonly arrived_at: number;
  readonly requestID: string;
  readonly num_prefill_tokens: number;
  readonly num_decode_tokens: number;
  readonly ttft_ms: number;
  readonly itl_ms: number;
  readonly e2e_ms: number;
  readonly scheduling_delay_ms: number;
  readonly slo_class?: string;
  readonly tenant_id?: string;
  readonly handled_by?: string;
  readonly model?: string;
  readonly adapter?: string;
  readonly length_capped?: boolean;
  readonly gateway_queue_delay_ms?: number;
  readonly session_id?: string;
  readonly round_index: number;
}

/** Not listed: what no instance ever had, and what could never run. */
function isListed(table: RequestTable, row: number): boolean {
  return table.instance[row] >= 0 && table.status[row] !== Status.UNSERVABLE;
}

/** Milliseconds of a time that is -1 where it is not known. */
function ms(us: number): number {
  return us < 0 ? 0 : us / 1000;
}

function requestRow(table: RequestTable, row: number, handledBy: string): RequestRow {
  const { sloClass, tenantId, model, adapter } = table.originOf(row);
  const isCapped =
    table.status[row] === Status.COMPLETED && table.generatedTokens[row] < table.outputTokens[row];
  const session = table.sessionOf(row);
  return {
    arrived_at: table.arrivalUs[row] / 1e6,
    requestID: table.idOf(row),
    num_prefill_tokens: table.promptTokens[row],
    num_decode_tokens: table.outputTokens[row],
    ttft_ms: ms(table.firstTokenUs[row]),
    itl_ms: table.e2eUs[row] < 0 ? 0 : table.meanGapUs(row) / 1000,
    e2e_ms: ms(table.e2eUs[row]),
    scheduling_delay_ms: ms(table.schedulingDelayUs[row]),
    ...(sloClass === '' ? {} : { slo_class: sloClass }),
    ...(tenantId === '' ? {} : { tenant_id: tenantId }),
    ...(handledBy === '' ? {} : { handled_by: handledBy }),
    ...(model === '' ? {} : { model }),
    ...(adapter === '' ? {} : { adapter }),
    ...(isCapped ? { length_capped: true } : {}),
    ...(table.gatewayUs[row] > 0 ? { gateway_queue_delay_ms: table.gatewayUs[row] / 1000 } : {}),
    ...(session === '' ? {} : { session_id: session }),
    round_index: table.round[row],
  };
}

/** Listed rows in order of arrival, and of ids where arrivals are equal. */
function requestRows(
  table: RequestTable,
  rows: readonly number[],
  instances: readonly Instance[],
): RequestRow[] {
  return rows
    .filter((row) => isListed(table, row))
    .map((row) => requestRow(table, row, instances[table.instance[row]].id))
    .sort((a, b) => a.arrived_at - b.arrived_at || (a.requestID < b.requestID ? -1 : 1));
}

// Requests that have targets: each of them attained, missed or was turned away.

/** Counts of requests; `attained`, `missed` and `rejected` come to `injected`. */
interface Attained {
  readonly injected: number;
  /** Completed, and held every target of its class. */
  readonly attained: number;
  /** Came to an instance, or was on its way there at the end, and did not hold them. */
  readonly missed: number;
  /** Turned away before it came to an instance: by admission, the gateway's queue or routing. */
  readonly rejected: number;
}

/** Over all classes with targets, and by class; requests of other classes are in `withoutTargets`. */
export function attainedOf(
  table: RequestTable,
  targets: TargetsByClass,
): Attained & { readonly withoutTargets: number; readonly byClass: Readonly<Record<string, Attained>> } {
  const none = { injected: 0, attained: 0, missed: 0, rejected: 0 };
  const byClass = new Map(
    Object.keys(targets)
      .sort()
      .map((name) => [name, { ...none }]),
  );
  const all = { ...none };
  for (let row = 0; row < table.size; row++) {
    const ofClass = byClass.get(classOf(table, row));
    if (ofClass === undefined) continue;
    for (const counts of [all, ofClass]) {
      counts.injected++;
      if (wasTurnedAway(table, row)) counts.rejected++;
      else if (meetsTargets(table, row, targets)) counts.attained++;
      else counts.missed++;
    }
  }
  return { ...all, withoutTargets: table.size - all.injected, byClass: Object.fromEntries(byClass) };
}
