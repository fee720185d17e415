/** What summaries are written from: one run of one case, after its end. */

import type { TargetsByClass } from '../../sim/report/index.ts';
import type { RawMetrics } from '../fitness/index.ts';
import type { Anomaly, Regret, RoutingRecord } from '../trace/index.ts';

/** One request, as far as summaries tell of it. Times in milliseconds, -1 for what never came. */
export interface RequestFact {
  readonly id: string;
  readonly tenant: string;
  readonly sloClass: string;
  readonly arrivalMs: number;
  readonly promptTokens: number;
  readonly status: string;
  readonly ttftMs: number;
  readonly e2eMs: number;
  readonly tpotMs: number;
  readonly preemptions: number;
  /** Whether it met the targets of its class; true where it has none. */
  readonly good: boolean;
  /** Undefined for one that was never routed. */
  readonly routing: RoutingRecord | undefined;
}

export interface RunFacts {
  readonly caseId: string;
  readonly policyId: string;
  readonly metrics: RawMetrics;
  /** Of the baseline on the same case, where it was run. */
  readonly baseline: RawMetrics | undefined;
  readonly targets: TargetsByClass;
  /** Whether routing goes by what instances report. */
  readonly routesByReports: boolean;
  /** In order of arrival. */
  readonly requests: readonly RequestFact[];
  readonly anomalies: readonly Anomaly[];
  readonly regrets: readonly Regret[];
}

export function ms(value: number): string {
  return value < 0 ? 'never' : `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ms`;
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)}%`;
}

export function groupBy<T>(items: readonly T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const name = key(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return groups;
}
