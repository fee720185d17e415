/** What autoscalers did, as records and in sum. */

export { type ScaleRecord, ScaleRecords } from './scaleRecords.ts';
export { type ScalingOf, ScalingReport } from './scalingReport.ts';
