/** A simulation's requests as files: rows with every time that is known, TraceV2, and upstream's results. */

import type { Simulation } from '../../../sim/cluster/index.ts';
import { Status, statusNames } from '../../../sim/metrics/index.ts';
import {
  type TraceColumns,
  type TraceTiming,
  traceColumns,
  traceHeader,
  traceRow,
  type WorkloadRequest,
  type WorkloadSpec,
} from '../../../sim/workload/index.ts';
import { jsonText } from './metricsFile.ts';

/** One row of `--requests`; times in microseconds, null for what did not happen. */
export interface RequestRecord {
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

/** Header and rows of a TraceV2 pair. `requests` are those that arrived, in order. */
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
      finishReason: '',
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
