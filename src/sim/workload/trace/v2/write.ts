/**
 * Writing TraceV2: a header in YAML and one CSV row a request. Columns that only some traces use appear when
 * asked for; a caller that streams decides before the first row (`columnsFor`).
 */

import type { WorkloadRequest } from '../../request.ts';
import type { SloTargets } from '../../spec/types.ts';
import { csvCell } from '../csv.ts';

export const TRACE_VERSION = 3;

const FIXED_COLUMNS = [
  'request_id',
  'client_id',
  'tenant_id',
  'slo_class',
  'session_id',
  'round_index',
  'prefix_group',
  'prefix_length',
  'streaming',
  'input_tokens',
  'output_tokens',
  'text_tokens',
  'image_tokens',
  'audio_tokens',
  'video_tokens',
  'reason_ratio',
  'model',
  'deadline_us',
  'server_input_tokens',
  'arrival_time_us',
  'send_time_us',
  'first_chunk_time_us',
  'last_chunk_time_us',
  'num_chunks',
  'status',
  'error_message',
  'finish_reason',
] as const;

/** Which of the optional columns a trace has. */
export interface TraceColumns {
  readonly sloTarget: boolean;
  readonly adapter: boolean;
  readonly thinkTime: boolean;
}

/** What a simulation knows of a finished request; times in µs, 0 for what did not happen. */
export interface TraceTiming {
  readonly firstChunkUs: number;
  readonly lastChunkUs: number;
  readonly status: 'ok' | 'timeout' | 'error' | 'incomplete';
  readonly finishReason: string;
}

const NOT_RUN: TraceTiming = { firstChunkUs: 0, lastChunkUs: 0, status: 'incomplete', finishReason: '' };

export function traceColumns(columns: TraceColumns): string {
  const names: string[] = [...FIXED_COLUMNS];
  if (columns.sloTarget) names.splice(names.indexOf('deadline_us') + 1, 0, 'slo_target_us');
  if (columns.adapter) names.push('adapter');
  if (columns.thinkTime) names.push('think_time_us');
  return names.join(',');
}

/** One row, without a line end. */
export function traceRow(
  requestId: number,
  request: WorkloadRequest,
  columns: TraceColumns,
  timing: TraceTiming = NOT_RUN,
): string {
  const { origin, modalities } = request;
  const cells: Array<string | number | boolean> = [
    requestId,
    csvCell(origin.clientId),
    csvCell(origin.tenantId),
    csvCell(origin.sloClass),
    csvCell(request.sessionId),
    request.round,
    csvCell(request.recordedPrefixGroup),
    request.prefixTokens,
    request.streaming,
    request.inputTokens - request.prefixTokens,
    request.outputTokens,
    modalities?.text ?? 0,
    modalities?.image ?? 0,
    modalities?.audio ?? 0,
    modalities?.video ?? 0,
    request.reasonRatio,
    csvCell(origin.model),
    request.deadlineUs,
  ];
  if (columns.sloTarget) cells.push(origin.sloTargetUs);
  cells.push(
    0,
    request.arrivalUs,
    request.arrivalUs,
    timing.firstChunkUs,
    timing.lastChunkUs,
    0,
    timing.status,
    '',
    timing.finishReason,
  );
  if (columns.adapter) cells.push(csvCell(origin.adapter));
  if (columns.thinkTime) cells.push(request.thinkTimeUs);
  return cells.join(',');
}

export interface TraceHeaderFields {
  readonly mode: 'generated' | 'real' | 'replayed';
  readonly workloadSeed?: bigint;
  readonly workloadSpec?: string;
  readonly sessionContextGrowth?: '' | 'accumulate';
  readonly goodputSloTargets?: Readonly<Record<string, SloTargets>>;
}

/** The header file of a generated trace. */
export function traceHeader(fields: TraceHeaderFields): string {
  const lines = [
    `trace_version: ${TRACE_VERSION}`,
    'time_unit: microseconds',
    `mode: ${fields.mode}`,
    'warm_up_requests: 0',
  ];
  if (fields.workloadSeed !== undefined) lines.push(`workload_seed: ${fields.workloadSeed}`);
  if (fields.workloadSpec !== undefined) lines.push(`workload_spec: ${JSON.stringify(fields.workloadSpec)}`);
  if (fields.sessionContextGrowth === 'accumulate') lines.push('session_context_growth: accumulate');
  const targets = Object.entries(fields.goodputSloTargets ?? {});
  if (targets.length > 0) {
    lines.push('goodput_slo_targets:');
    for (const [name, target] of targets) {
      lines.push(`  ${JSON.stringify(name)}:`);
      if (target.ttftMs !== undefined) lines.push(`    ttft_ms: ${target.ttftMs}`);
      if (target.itlMs !== undefined) lines.push(`    itl_ms: ${target.itlMs}`);
      if (target.e2eMs !== undefined) lines.push(`    e2e_ms: ${target.e2eMs}`);
    }
  }
  return `${lines.join('\n')}\n`;
}
