/**
 * How many requests met the targets of their class, by upstream's formulas. Every request that came in counts,
 * wherever it ended: one that was turned away has met nothing.
 */

import {
  meanMs,
  percentileMs,
  type RequestTable,
  Status,
  type Targets,
  type TargetsByClass,
} from '../../metrics/index.ts';
import { defaultClass } from './groups.ts';

export interface ClassGoodput {
  /** Requests of the class that came in, those that were turned away included. */
  readonly count: number;
  readonly e2e_p99_ms: number;
  readonly goodput_rps: number;
  readonly itl_mean_ms: number;
  readonly slo_attainment: number;
  readonly slo_attainment_by_dim: Readonly<Record<string, number>>;
  readonly ttft_p99_ms: number;
}

export interface Goodput {
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
  const names = Object.keys(targets).sort();
  if (names.length === 0) return undefined;
  const perClass: Record<string, ClassGoodput> = {};
  let good = 0;
  let injected = 0;
  for (const name of names) {
    const { result, goodRequests } = ofClass(table, name, targets[name], durationS);
    if (result.count === 0) continue;
    perClass[name] = result;
    good += goodRequests;
    injected += result.count;
  }
  return {
    goodput_rps: durationS > 0 ? good / durationS : 0,
    slo_attainment: injected === 0 ? 0 : good / injected,
    per_class: perClass,
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
