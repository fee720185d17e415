/** The rows of requests of a run, under upstream's names: every request that came to an instance. */

import type { Instance } from '../../instance/index.ts';
import { type RequestTable, Status } from '../../metrics/index.ts';

export interface RequestRow {
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

export function requestRow(table: RequestTable, row: number, handledBy: string): RequestRow {
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
export function requestRows(
  table: RequestTable,
  rows: readonly number[],
  instances: readonly Instance[],
): RequestRow[] {
  return rows
    .filter((row) => isListed(table, row))
    .map((row) => requestRow(table, row, instances[table.instance[row]].id))
    .sort((a, b) => a.arrived_at - b.arrived_at || (a.requestID < b.requestID ? -1 : 1));
}
