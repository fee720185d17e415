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

export type Severity = 'low' | 'medium' | 'high';

export interface Anomaly {
  readonly type: AnomalyType;
  /** When it began, in simulated microseconds. */
  readonly timeUs: number;
  readonly description: string;
  /** Examples. */
  readonly requests: readonly string[];
  /** How often it happened. */
  readonly count: number;
  readonly severity: Severity;
}

/** Requests that are named for one anomaly. */
export const EXAMPLES = 5;

/** Above a tenth of all requests it is high, above a fiftieth medium. */
export function severityOf(count: number, requests: number): Severity {
  if (count * 10 > requests) return 'high';
  return count * 50 > requests ? 'medium' : 'low';
}
