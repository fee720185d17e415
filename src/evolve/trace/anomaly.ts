/** What went wrong in a run, in seven kinds. */

export const anomalyTypes = [
  'priority_inversion',
  'slo_violation',
  'cache_thrashing',
  'shadow_divergence',
  'scale_oscillation',
  'pd_backpressure',
  'preemption_storm',
] as const;
export type AnomalyType = (typeof anomalyTypes)[number];

export const severities = ['low', 'medium', 'high'] as const;
export type Severity = (typeof severities)[number];

export interface Anomaly {
  readonly type: AnomalyType;
  /** When it began, in simulated microseconds. */
  readonly timeUs: number;
  readonly description: string;
  /** Examples of requests that it concerns, at most five. */
  readonly requests: readonly string[];
  /** How often it happened. */
  readonly count: number;
  /** Requests that it concerns. */
  readonly concerned: number;
  readonly severity: Severity;
}

/** Requests that are named for one anomaly. */
export const EXAMPLES = 5;

/** By how many of all requests it concerns: above a tenth it is high, above a fiftieth medium. */
export function severityOf(concerned: number, requests: number): Severity {
  if (concerned * 10 > requests) return 'high';
  return concerned * 50 > requests ? 'medium' : 'low';
}
