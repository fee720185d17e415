/** What happened in a run and why: decisions, anomalies, and what the alternatives would have given. */

export { type Anomaly, type AnomalyType, anomalyTypes, type Severity, severities } from './anomaly.ts';
export { TraceRecorder } from './recorder.ts';
export { type RoutingRecord, type TraceLevel, type TraceRecord, traceLevels } from './records.ts';
export { type Alternative, type Regret, regretsOf, sampleDecisions } from './regret.ts';
