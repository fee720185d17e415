/** What a run is shown and written as. */

export { hitRateOf, type MetricsOutput, metricsOutput } from './metricsOutput.ts';
export { type RequestRow, requestRow } from './requestRows.ts';
