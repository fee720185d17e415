/** What a run is shown and written as. */

export { headOfLineBlocking, priorityInversions } from './anomalies.ts';
export { type ClassGoodput, type Goodput, goodputOf, type Targets, type TargetsByClass } from './goodput.ts';
export {
  type ClassSummary,
  classSummaries,
  type SessionSummary,
  sessionSummary,
  type TenantSummary,
  tenantSummaries,
} from './groups.ts';
export { clusterMetrics, hitRateOf, type MetricsOutput, metricsOutput } from './metricsOutput.ts';
export { type RequestRow, requestRow } from './requestRows.ts';
