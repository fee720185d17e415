/** Metrics by SLO class, tenant and session, by upstream's formulas. */

import { jainIndex, type RequestTable, Status, type Summary, summarize } from '../../metrics/index.ts';

export interface ClassSummary {
  readonly name: string;
  /** In microseconds; time between tokens as the mean of each request. */
  readonly ttft: Summary;
  readonly itl: Summary;
  readonly e2e: Summary;
}

export interface TenantSummary {
  readonly name: string;
  readonly requests: number;
  readonly tokens: number;
}

export interface SessionSummary {
  readonly sessions: number;
  /** First rounds, later rounds, and whole sessions, in microseconds. */
  readonly cold: Summary;
  readonly warm: Summary;
  readonly duration: Summary;
}

/** Name that requests without a class have in goodput. */
export const defaultClass = 'default';

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
