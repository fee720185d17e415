/**
 * Means, percentiles and targets over the requests of a run, formed operation by operation as upstream
 * forms them, so that the bits agree. A percentile lies on the line between the two nearest ranks of the
 * sorted list.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { type RequestTable, Status, type ValueCounts } from './requestTable.ts';

export interface Summary {
  readonly count: number;
  /** In the unit of the values. */
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p95: number;
  readonly p99: number;
  readonly max: number;
}

/** Percentile `p` of sorted whole microseconds, in milliseconds. 0 of an empty list. */
export function percentileMs(sorted: Float64Array, p: number): number {
  if (sorted.length === 0) return 0;
  const rank = (p / 100) * (sorted.length - 1);
  const lower = Math.floor(rank);
  const upper = Math.ceil(rank);
  if (lower === upper) return sorted[lower] / 1000;
  return sorted[lower] / 1000 + ((sorted[upper] - sorted[lower]) * (rank - lower)) / 1000;
}

/** Mean of whole microseconds, in milliseconds. 0 of an empty list. */
export function meanMs(values: Float64Array): number {
  let sum = 0;
  for (const value of values) sum += value;
  return values.length === 0 ? 0 : sum / values.length / 1000;
}

/** Percentile `p` of the counted values, in microseconds,, in milliseconds. */
export function countedPercentileMs(counts: ValueCounts, p: number): number {
  if (counts.count === 0) return 0;
  const rank = (p / 100) * (counts.count - 1);
  const lower = Math.floor(rank);
  const upper = Math.ceil(rank);
  const [low, high] = counts.at([lower, upper]);
  if (lower === upper) return low / 1000;
  return low / 1000 + ((high - low) * (rank - lower)) / 1000;
}

export function countedMeanMs(counts: ValueCounts): number {
  return counts.count === 0 ? 0 : counts.sum / counts.count / 1000;
}

/** Percentile `p` of a sorted list in its own unit, as tables print it. 0 of an empty list. */
export function percentile(sorted: Float64Array, p: number): number {
  if (sorted.length === 0) return 0;
  const rank = (p / 100) * (sorted.length - 1);
  const lower = Math.floor(rank);
  const upper = Math.min(Math.ceil(rank), sorted.length - 1);
  return sorted[lower] + (rank - lower) * (sorted[upper] - sorted[lower]);
}

/** Summarizes a list. Sorts it in place. */
export function summarize(values: Float64Array): Summary {
  checkInputs({ values }, { values: is.bytes() });
  values.sort();
  let sum = 0;
  for (const value of values) sum += value;
  return {
    count: values.length,
    mean: values.length === 0 ? 0 : sum / values.length,
    p50: percentile(values, 50),
    p90: percentile(values, 90),
    p95: percentile(values, 95),
    p99: percentile(values, 99),
    max: values.length === 0 ? 0 : values[values.length - 1],
  };
}

/** Jain's index: 1 when all shares are equal, 1/n when one has everything. 0 of an empty list. */
export function jainIndex(shares: readonly number[]): number {
  let sum = 0;
  let squares = 0;
  for (const share of shares) {
    sum += share;
    squares += share * share;
  }
  return squares === 0 ? 0 : (sum * sum) / (shares.length * squares);
}

// Targets of requests by SLO class, and whether a request met them.

/** Targets in microseconds; those left out always hold. */
export interface Targets {
  readonly ttftUs?: number;
  readonly itlUs?: number;
  readonly e2eUs?: number;
}

/** Targets by SLO class; `default` is for requests without one. */
export type TargetsByClass = Readonly<Record<string, Targets>>;

/** Targets of a request by its class, which may have any name; undefined where that has none. */
export function targetsOf(table: RequestTable, row: number, targets: TargetsByClass): Targets | undefined {
  const name = classOf(table, row);
  return Object.hasOwn(targets, name) ? targets[name] : undefined;
}

/** Whether the row of a request holds all targets of its class. A target that is left out always holds. */
export function meetsTargets(table: RequestTable, row: number, targets: TargetsByClass): boolean {
  if (table.status[row] !== Status.COMPLETED) return false;
  const { ttftUs = Infinity, itlUs = Infinity, e2eUs = Infinity } = targetsOf(table, row, targets) ?? {};
  return table.firstTokenUs[row] <= ttftUs && table.meanGapUs(row) <= itlUs && table.e2eUs[row] <= e2eUs;
}

/** Which of the targets of its class a request met, by name; none that the class lacks. */
export function metTargets(
  table: RequestTable,
  row: number,
  targets: TargetsByClass,
): Readonly<Partial<Record<'ttft' | 'tpot' | 'e2e', boolean>>> {
  const { ttftUs, itlUs, e2eUs } = targetsOf(table, row, targets) ?? {};
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
