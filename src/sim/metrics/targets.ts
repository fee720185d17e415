/** Targets of requests by SLO class, and who met them. */

import { type RequestTable, Status } from './requestTable.ts';

/** Targets in microseconds; those left out always hold. */
export interface Targets {
  readonly ttftUs?: number;
  readonly itlUs?: number;
  readonly e2eUs?: number;
}

/** Targets by SLO class; `default` is for requests without one. */
export type TargetsByClass = Readonly<Record<string, Targets>>;

/** Whether the row of a request holds all targets of its class; those that are left out always hold. */
export function meetsTargets(table: RequestTable, row: number, targets: TargetsByClass): boolean {
  if (table.status[row] !== Status.COMPLETED) return false;
  const { ttftUs = Infinity, itlUs = Infinity, e2eUs = Infinity } = targets[classOf(table, row)] ?? {};
  return table.firstTokenUs[row] <= ttftUs && table.meanGapUs(row) <= itlUs && table.e2eUs[row] <= e2eUs;
}

/** Which of the targets of its class a request met, by name; none that the class lacks. */
export function metTargets(
  table: RequestTable,
  row: number,
  targets: TargetsByClass,
): Readonly<Partial<Record<'ttft' | 'tpot' | 'e2e', boolean>>> {
  const { ttftUs, itlUs, e2eUs } = targets[classOf(table, row)] ?? {};
  const completed = table.status[row] === Status.COMPLETED;
  return {
    ...(ttftUs === undefined ? {} : { ttft: completed && table.firstTokenUs[row] <= ttftUs }),
    ...(itlUs === undefined ? {} : { tpot: completed && table.meanGapUs(row) <= itlUs }),
    ...(e2eUs === undefined ? {} : { e2e: completed && table.e2eUs[row] <= e2eUs }),
  };
}

/** Whether the request ended before it came to an instance: it was served nowhere. */
export function wasTurnedAway(table: RequestTable, row: number): boolean {
  switch (table.status[row]) {
    case Status.REJECTED:
    case Status.UNROUTABLE:
    case Status.SHED:
    case Status.EXPIRED:
      return true;
    default:
      return false;
  }
}

export function classOf(table: RequestTable, row: number): string {
  return table.originOf(row).sloClass || 'default';
}
