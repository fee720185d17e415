/** What a run is shown and written as. */

export type { Targets, TargetsByClass } from '../metrics/index.ts';
export { headOfLineBlocking, priorityInversions } from './anomalies.ts';
export { type Attained, attainedOf } from './attained.ts';
export { ChromeTrace } from './chromeTrace.ts';
export { type DecisionSummary, Decisions } from './decisions.ts';
export { Occupancy, type OccupancySample } from './occupancy.ts';
export { type ScaleRecord, ScaleRecords, type ScalingOf, ScalingReport } from './scaling/index.ts';
export { Spread } from './spread.ts';
export { type CacheMetrics, cacheMetrics, type TransferMetrics, transferMetrics } from './tierMetrics.ts';
export { type ClassGoodput, type Goodput, goodputOf } from './upstream/goodput.ts';
export {
  type ClassSummary,
  classSummaries,
  type SessionSummary,
  sessionSummary,
  type TenantSummary,
  tenantSummaries,
} from './upstream/groups.ts';
export { clusterMetrics, hitRateOf, type MetricsOutput, metricsOutput } from './upstream/metricsOutput.ts';
export {
  compareRecorded,
  type MetricComparison,
  type RecordedComparison,
  type RequestTiming,
} from './upstream/recordedComparison.ts';
export { type RequestRow, requestRow } from './upstream/requestRows.ts';
