/** Metrics as JSON text in upstream's form: two spaces, and letters of HTML escaped. */

import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import { formatBytes, printable } from '../../io/printing/text.ts';
import { thrashingRateOf } from '../../runtime/outputs.ts';
import { conservationOf } from '../cluster/core.ts';
import type { Simulation } from '../cluster/simulation.ts';
import type { WorkloadSpec } from '../description/workloadSpec.ts';
import type { SharedServer } from '../links/sharedServer.ts';
import { type RequestTable, Status, statusNames } from '../metrics/requestTable.ts';
import type { Summary } from '../metrics/statistics.ts';
import { type DecisionSummary, headOfLineBlocking, priorityInversions } from '../report/decisions.ts';
import {
  classSummaries,
  type MetricsOutput,
  sessionSummary,
  tenantSummaries,
} from '../report/metricsOutput.ts';
import type { ScalingOf } from '../report/scaling.ts';
import { cacheMetrics, type OccupancySample, transferMetrics } from '../report/tierMetrics.ts';
import type { WorkloadRequest } from '../workload/request.ts';
import {
  type TraceColumns,
  type TraceTiming,
  traceColumns,
  traceHeader,
  traceRow,
} from '../workload/traceV2.ts';

const escapes: Readonly<Record<string, string>> = { '<': '\\u003c', '>': '\\u003e', '&': '\\u0026' };

export function jsonText(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/[<>&]/g, (letter) => escapes[letter]);
}

/** Upstream's fields first, then ours under `tierkv`. */
export function metricsText(metrics: MetricsOutput, tierkv: object = {}): string {
  return `${jsonText({ ...metrics, tierkv })}\n`;
}

//  Charts of a simulation: the distribution of latencies, and the use of tiers over time.

const WIDTH = 520;
const POINTS = 100;

interface CdfPoint {
  readonly what: string;
  readonly ms: number;
  readonly share: number;
}

/** Cumulative distribution of a latency, at equal steps of the share. */
function distribution(what: string, valuesUs: Float64Array): CdfPoint[] {
  if (valuesUs.length === 0) return [];
  valuesUs.sort();
  return Array.from({ length: POINTS + 1 }, (_, i) => {
    const at = Math.min(valuesUs.length - 1, Math.floor((i / POINTS) * valuesUs.length));
    return { what, ms: Math.max(valuesUs[at], 1) / 1000, share: i / POINTS };
  });
}

/** The three latencies of the requests that have them, in microseconds, in the order of arrival. */
export function latenciesOf(table: RequestTable): {
  readonly firstToken: Float64Array;
  readonly betweenTokens: Float64Array;
  readonly wholeRequest: Float64Array;
} {
  const known = (valueOfRow: (row: number) => number): Float64Array => {
    const values: number[] = [];
    for (let row = 0; row < table.size; row++) {
      const value = valueOfRow(row);
      if (value >= 0) values.push(value);
    }
    return Float64Array.from(values);
  };
  return {
    firstToken: known((row) => table.firstTokenUs[row]),
    // an answer of one token has none
    betweenTokens: known((row) =>
      table.e2eUs[row] >= 0 && table.generatedTokens[row] > 1 ? table.meanGapUs(row) : -1,
    ),
    wholeRequest: known((row) => table.e2eUs[row]),
  };
}

export function simulationChart(
  title: string,
  table: RequestTable,
  samples: readonly OccupancySample[],
  tiers: readonly string[],
): VegaLiteSpec {
  const { firstToken, betweenTokens, wholeRequest } = latenciesOf(table);
  const latencies = [
    ...distribution('first token', firstToken),
    ...distribution('between tokens', betweenTokens),
    ...distribution('whole request', wholeRequest),
  ];
  const occupancy = samples.flatMap(({ timeUs, shares }) =>
    shares.map((share, i) => ({ s: timeUs / 1e6, tier: tiers[i], share })),
  );
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title,
    background: 'white',
    resolve: { scale: { color: 'independent' } },
    vconcat: [
      {
        width: WIDTH,
        height: 180,
        data: { values: latencies },
        mark: { type: 'line' },
        encoding: {
          x: { field: 'ms', type: 'quantitative', scale: { type: 'log' }, title: 'time (ms)' },
          y: { field: 'share', type: 'quantitative', title: 'share of requests', axis: { format: '%' } },
          color: { field: 'what', type: 'nominal', title: null, sort: null },
        },
      },
      {
        width: WIDTH,
        height: 130,
        data: { values: occupancy },
        mark: { type: 'line', interpolate: 'step-after' },
        encoding: {
          x: { field: 's', type: 'quantitative', title: 'time (s)' },
          y: { field: 'share', type: 'quantitative', title: 'tier in use', axis: { format: '%' } },
          color: { field: 'tier', type: 'nominal', title: null, sort: null },
        },
      },
    ],
  };
}

//  A simulation's requests as files: rows with every time that is known, TraceV2, and upstream's results.

/** One row of the file of requests. Times are in microseconds, and null where the event did not happen. */
interface RequestRecord {
  readonly id: string;
  readonly status: string;
  readonly instance: string | null;
  readonly client: string;
  readonly tenant: string;
  readonly sloClass: string;
  readonly session: string;
  readonly round: number;
  readonly arrivalUs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly generatedTokens: number;
  readonly gatewayUs: number | null;
  /** From arrival until it joined a batch, the last time. */
  readonly schedulingDelayUs: number | null;
  /** From arrival until the client has the first token. */
  readonly ttftUs: number | null;
  /** Mean gap between tokens. */
  readonly tpotUs: number | null;
  readonly e2eUs: number | null;
  readonly preemptions: number;
}

const known = (value: number): number | null => (value < 0 ? null : value);

export function* requestRecords({ table, instances }: Simulation): Generator<RequestRecord> {
  for (let row = 0; row < table.size; row++) {
    const { clientId, tenantId, sloClass } = table.originOf(row);
    const number = table.instance[row];
    const isComplete = table.e2eUs[row] >= 0;
    yield {
      id: table.idOf(row),
      status: statusNames[table.status[row]],
      instance: number < 0 ? null : instances[number].id,
      client: clientId,
      tenant: tenantId,
      sloClass,
      session: table.sessionOf(row),
      round: table.round[row],
      arrivalUs: table.arrivalUs[row],
      promptTokens: table.promptTokens[row],
      outputTokens: table.outputTokens[row],
      generatedTokens: table.generatedTokens[row],
      gatewayUs: known(table.gatewayUs[row]),
      schedulingDelayUs: known(table.schedulingDelayUs[row]),
      ttftUs: known(table.firstTokenUs[row]),
      tpotUs: isComplete ? table.meanGapUs(row) : null,
      e2eUs: known(table.e2eUs[row]),
      preemptions: table.preemptions[row],
    };
  }
}

export function* jsonLines(records: Iterable<object>, first: object): Generator<string> {
  yield `${JSON.stringify(first)}\n`;
  for (const record of records) yield `${JSON.stringify(record)}\n`;
}

export function* csvLines(records: Iterable<RequestRecord>): Generator<string> {
  let isFirst = true;
  for (const record of records) {
    if (isFirst) yield `${Object.keys(record).join(',')}\n`;
    isFirst = false;
    yield `${Object.values(record).map(csvCell).join(',')}\n`;
  }
}

function csvCell(value: string | number | null): string {
  if (value === null) return '';
  const text = String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Header and rows of a TraceV2 pair. `requests` are the arrived ones, in order. */
export function traceFiles(
  simulation: Simulation,
  requests: readonly WorkloadRequest[],
  spec: WorkloadSpec | undefined,
): { readonly header: string; readonly rows: Iterable<string> } {
  const accumulate = spec?.clients.some((client) => client.reasoning?.multiTurn?.accumulate) === true;
  const header = traceHeader({
    mode: spec === undefined ? 'replayed' : 'generated',
    ...(spec === undefined ? {} : { workloadSeed: spec.seed, goodputSloTargets: spec.goodputSloTargets }),
    ...(accumulate ? { sessionContextGrowth: 'accumulate' } : {}),
  });
  const columns: TraceColumns = {
    sloTarget: requests.some(({ origin }) => origin.sloTargetUs > 0),
    adapter: requests.some(({ origin }) => origin.adapter !== ''),
    thinkTime: requests.some(({ thinkTimeUs }) => thinkTimeUs > 0),
    cancelTime: requests.some(({ cancelUs = 0 }) => cancelUs > 0),
  };
  return { header, rows: traceLines(simulation, requests, columns) };
}

function* traceLines(
  { table }: Simulation,
  requests: readonly WorkloadRequest[],
  columns: TraceColumns,
): Generator<string> {
  yield `${traceColumns(columns)}\n`;
  for (const [row, request] of requests.entries()) {
    const first = table.firstTokenUs[row];
    const firstChunkUs = first < 0 ? 0 : request.arrivalUs + first;
    const timing: TraceTiming = {
      firstChunkUs,
      lastChunkUs: table.e2eUs[row] < 0 ? firstChunkUs : firstChunkUs + table.gapUs[row],
      status: traceStatus(table.status[row] as Status),
      finishReason: table.status[row] === Status.CANCELLED ? 'abort' : '',
    };
    yield `${traceRow(row, request, columns, timing)}\n`;
  }
}

function traceStatus(status: Status): TraceTiming['status'] {
  if (status === Status.COMPLETED) return 'ok';
  if (status === Status.TIMED_OUT) return 'timeout';
  return status < Status.COMPLETED ? 'incomplete' : 'error';
}

/** Upstream's results file: completed requests with ids `request_<n>`, in order of n. */
export function resultsText({ table }: Simulation): string {
  const rows: { request_id: number }[] = [];
  for (let row = 0; row < table.size; row++) {
    const number = /^request_(\d+)$/.exec(table.idOf(row))?.[1];
    if (number === undefined || table.e2eUs[row] < 0) continue;
    const { sloClass, model } = table.originOf(row);
    const result = {
      request_id: Number(number),
      ttft_us: table.firstTokenUs[row],
      e2e_us: table.e2eUs[row],
      input_tokens: table.promptTokens[row],
      output_tokens: table.generatedTokens[row],
      ...(sloClass === '' ? {} : { slo_class: sloClass }),
      ...(model === '' ? {} : { model }),
      itl_mean_us: table.meanGapUs(row),
    };
    rows.push(result);
  }
  return `${jsonText(rows.sort((a, b) => a.request_id - b.request_id))}\n`;
}

// Input of the printed summary: upstream's sections, each only where it has something to say.

export interface SummaryInput {
  readonly simulation: Simulation;
  readonly cluster: MetricsOutput;
  readonly perInstance: readonly MetricsOutput[];
  /** Whether classes were scheduled by priority; upstream counts inversions only then. */
  readonly byPriority: boolean;
  readonly hasTargets: boolean;
  /** Whether ratios of a cluster are means over instances, as upstream forms them. */
  readonly asUpstream: boolean;
  /** Summary of the decisions; undefined unless it is asked for. */
  readonly decisions: DecisionSummary | undefined;
  /** Scaling of each pool that scales. */
  readonly scaling: readonly ScalingOf[];
}

function metricsSection(metrics: MetricsOutput): string {
  const { requests: _rows, cache_hit_rate: _rate, ...shown } = metrics;
  return `=== Simulation Metrics ===\n${jsonText(shown)}\n`;
}

/** Requests that admission rejected, by SLO class; those without one are `standard`, as upstream has it. */
function shedByClass(table: RequestTable): [string, number][] {
  const byClass = new Map<string, number>();
  for (let row = 0; row < table.size; row++) {
    if (table.status[row] !== Status.REJECTED) continue;
    const { sloClass } = table.originOf(row);
    const name = sloClass || 'standard';
    byClass.set(name, (byClass.get(name) ?? 0) + 1);
  }
  return [...byClass].sort(([a], [b]) => (a < b ? -1 : 1));
}

function anomalySection({ simulation, cluster, byPriority, asUpstream }: SummaryInput): string {
  const { table, instances } = simulation;
  const counts = conservationOf(table);
  const shed = shedByClass(table).map(([name, count]): [string, number] => [`  Shed (${name})`, count]);
  const rows: [string, number][] = [
    ['Priority Inversions', byPriority ? priorityInversions(table) : 0],
    ['HOL Blocking Events', headOfLineBlocking(instances)],
    ['Rejected Requests (Admission)', counts.rejected],
    ...shed,
    ['Rejected Requests (Routing)', counts.unroutable],
    ['Dropped Unservable', cluster.dropped_unservable],
    ['Timed Out Requests', cluster.timed_out_requests],
    ['Length-Capped Requests', cluster.length_capped_requests],
  ];
  const ours: [string, number][] = [
    ['Shed by Gateway Queue', counts.shed],
    ['Expired in Gateway Queue', counts.expired],
    ['Lost with Their Instance', counts.lost],
    ['Cancelled by Users', counts.cancelled],
    ['Not Yet with an Instance', counts.arrived],
  ];
  if (!asUpstream) rows.push(...ours.filter(([, count]) => count > 0));
  if (rows.every(([, count]) => count === 0)) return '';
  const lines = rows.map(([name, count]) => `${printable(name)}: ${count}\n`);
  return `=== Anomaly Counters ===\n${lines.join('')}`;
}

function kvSection({ simulation: { instances }, cluster, asUpstream }: SummaryInput): string {
  const { completed_requests: completed, preemption_count: preemptions } = cluster;
  const { hitRate, thrashingRate: thrashing } = asUpstream
    ? meansOf(instances, cluster)
    : cacheMetrics(instances);
  if (preemptions === 0 && hitRate === 0 && thrashing === 0) return '';
  const rate = completed === 0 ? 0 : preemptions / completed;
  return (
    '=== KV Cache Metrics ===\n' +
    `Preemption Rate: ${rate.toFixed(4)}\n` +
    `Cache Hit Rate: ${hitRate.toFixed(4)}\n` +
    `KV Thrashing Rate: ${thrashing.toFixed(4)}\n`
  );
}

/** Upstream's figures of a cluster: plain means over the instances, an idle one as 0. */
function meansOf(
  instances: SummaryInput['simulation']['instances'],
  cluster: MetricsOutput,
): { readonly hitRate: number; readonly thrashingRate: number } {
  const thrashing = instances.reduce((sum, { engine: { counters } }) => sum + thrashingRateOf(counters), 0);
  return { hitRate: cluster.cache_hit_rate, thrashingRate: thrashing / instances.length };
}

/** Figures of tiers below GPU memory, which upstream does not print; empty without such tiers. */
function tierSection({ simulation }: SummaryInput): string {
  const { tiers, links, sent, reloads, thrashed, stepTransferUs } = transferMetrics(simulation.instances);
  if (tiers.length < 2) return '';
  const rows = tiers.map(
    ({ tier, capacityBlocks, hits, evictions, readBytes }) =>
      `  ${tier}: blocks=${capacityBlocks}, hits=${hits}, evictions=${evictions}, ` +
      `read=${formatBytes(readBytes)}\n`,
  );
  const carried = links.map(
    ({ link, bytes, busyUs }) => `  ${link}: ${formatBytes(bytes)}, busy ${(busyUs / 1e6).toFixed(3)} s\n`,
  );
  const { lookups, misses } = cacheMetrics(simulation.instances);
  const shared = simulation.shared === null ? '' : `  ${sharedLine(simulation.shared)}`;
  return (
    `=== KV Tiers ===\n${rows.join('')}${shared}  misses=${misses} of ${lookups} lookups\n${carried.join('')}` +
    `  sent=${sent}, reloads=${reloads}, thrashed=${thrashed}, ` +
    `billed to steps ${(stepTransferUs / 1e6).toFixed(3)} s\n`
  );
}

/** Figures of the server that all instances share; empty without one. */
export function sharedLine(shared: SharedServer | null): string {
  if (shared === null) return '';
  const { counts, config, residentBytes } = shared;
  return (
    `shared: ${formatBytes(residentBytes)} of ${formatBytes(config.capacityBytes)}, ` +
    `${counts.found} blocks found in ${counts.lookups} lookups, read=${formatBytes(counts.readBytes)}, ` +
    `written=${formatBytes(counts.writtenBytes)}, forgotten=${counts.evictions}, ` +
    `missing=${counts.missing}, there already=${counts.writtenByOthers}\n`
  );
}

function handoffSection({ simulation }: SummaryInput): string {
  const { completed, delayed, bytes, transfers, waitedUs, transferUs, longestQueue } =
    simulation.handoffs.counters;
  if (completed === 0) return '';
  const mean = (us: number): string => (us / completed / 1000).toFixed(3);
  const parts = transfers === completed ? '' : ` in ${transfers} transfers`;
  return (
    `=== PD Metrics ===\nDisaggregated Requests: ${completed}\n` +
    `Delayed by Decode KV: ${delayed} (mean wait ${mean(waitedUs)} ms, longest queue ${longestQueue})\n` +
    `KV Transfers: ${formatBytes(bytes)}${parts}, mean ${mean(transferUs)} ms\n`
  );
}

function scalingSection({ scaling }: SummaryInput): string {
  if (scaling.length === 0) return '';
  const lines = scaling.map(
    ({ configId, policy, minReplicas, maxReplicas, ups, downs, ...of }) =>
      `  ${printable(configId)}: ${policy}, ${minReplicas} to ${maxReplicas} replicas, ` +
      `up ${ups} and down ${downs} times, ${of.fewest} to ${of.most} at a time, ` +
      `mean ${of.meanReplicas.toFixed(2)}; ` +
      `${of.added} came, ${of.gone} went\n`,
  );
  return `=== Autoscaling ===\n${lines.join('')}`;
}

function classSection({ simulation, hasTargets, asUpstream }: SummaryInput): string {
  const ms = (us: number): string => (us / 1000).toFixed(2);
  const classes = classSummaries(simulation.table);
  if (classes.length < 2 && !(hasTargets && classes.length > 0)) return '';
  const line = (name: string, { mean, p99, count }: Summary): string =>
    asUpstream
      ? `    ${name} mean=${mean.toFixed(2)} p99=${p99.toFixed(2)} (n=${count})\n` // microseconds, as upstream has it
      : `    ${name} mean=${ms(mean)} p99=${ms(p99)} ms (n=${count})\n`;
  const text = classes.map(
    ({ name, ttft, itl, e2e }) =>
      `  ${printable(name)}:\n${line('TTFT:', ttft)}${line('ITL: ', itl)}${line('E2E: ', e2e)}`,
  );
  return `=== Per-SLO Metrics ===\n${text.join('')}`;
}

function tenantSection({ simulation, asUpstream }: SummaryInput): string {
  const { tenants, jain } = tenantSummaries(simulation.table, asUpstream);
  if (tenants.length === 0) return '';
  const text = tenants.map(
    ({ name, requests, tokens }) => `  ${printable(name)}: requests=${requests}, tokens=${tokens}\n`,
  );
  return `=== Per-Tenant Metrics ===\n${text.join('')}  Jain Fairness Index: ${jain.toFixed(4)}\n`;
}

function sessionSection({ simulation }: SummaryInput): string {
  const summary = sessionSummary(simulation.table);
  if (summary === undefined) return '';
  const ms = (us: number): string => (us / 1000).toFixed(2);
  const line = (name: string, { mean, p50, p95, p99, count }: Summary): string =>
    `  ${name} mean=${ms(mean)} p50=${ms(p50)} p95=${ms(p95)} p99=${ms(p99)} ms (n=${count})\n`;
  return (
    `=== Session Metrics ===\n  Sessions: ${summary.sessions}\n` +
    line('TTFT cold (round 0):', summary.cold) +
    line('TTFT warm (round≥1):', summary.warm) +
    line('Session duration:   ', summary.duration)
  );
}

function decisionSection({ simulation, decisions }: SummaryInput): string {
  if (decisions === undefined) return '';
  const { admitted, rejected, targets, meanRegret, maxRegret, divergences } = decisions;
  const lines = [...targets]
    .map(([instance, count]): [string, number] => [simulation.instances[instance].id, count])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([id, count]) => `  ${id}: ${count}\n`);
  return (
    `=== Trace Summary ===\nTotal Decisions: ${admitted + rejected}\n` +
    `  Admitted: ${admitted}\n  Rejected: ${rejected}\nUnique Targets: ${targets.size}\n` +
    `Target Distribution:\n${lines.join('')}` +
    `Mean Regret: ${meanRegret.toFixed(6)}\nMax Regret: ${maxRegret.toFixed(6)}\n` +
    (divergences > 0 ? `Shadow Divergences: ${divergences}\n` : '')
  );
}

/** Sections that the tables of `runText` do not cover. */
const sections: readonly ((input: SummaryInput) => string)[] = [
  classSection,
  tenantSection,
  sessionSection,
  handoffSection,
  scalingSection,
  decisionSection,
];

/** Sections under a plain heading. */
export function sectionsText(input: SummaryInput): string {
  const text = [anomalySection, ...sections].map((section) => section(input)).join('');
  return text.replace(/^=== (.*) ===$/gm, '\n$1');
}

/** The summary as upstream prints it. */
export function summaryText(input: SummaryInput): string {
  const { cluster, perInstance } = input;
  const metrics = [...perInstance, cluster].map(metricsSection).join('');
  const all = [anomalySection, kvSection, ...sections, tierSection];
  return metrics + all.map((section) => section(input)).join('');
}
