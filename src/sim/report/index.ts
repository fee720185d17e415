/** What a run is shown and written as. */

export type { Targets, TargetsByClass } from '../metrics/index.ts';
export { headOfLineBlocking, priorityInversions } from './anomalies.ts';
export { ChromeTrace } from './chromeTrace.ts';
export { type DecisionSummary, Decisions } from './decisions.ts';
export { type ClassGoodput, type Goodput, goodputOf } from './goodput.ts';
export {
  type ClassSummary,
  classSummaries,
  type SessionSummary,
  sessionSummary,
  type TenantSummary,
  tenantSummaries,
} from './groups.ts';
export { clusterMetrics, hitRateOf, type MetricsOutput, metricsOutput } from './metricsOutput.ts';
export { Occupancy, type OccupancySample } from './occupancy.ts';
export {
  compareRecorded,
  type MetricComparison,
  type RecordedComparison,
  type RequestTiming,
} from './recordedComparison.ts';
export { type RequestRow, requestRow } from './requestRows.ts';
export { type ScaleRecord, ScaleRecords, type ScalingOf, ScalingReport } from './scaling/index.ts';
export { type LinkMetrics, type TierMetrics, type TransferMetrics, transferMetrics } from './tierMetrics.ts';
