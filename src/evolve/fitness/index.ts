/** What a run is worth. */

export { attainmentOf, classOf, meetsTargets } from './attainment.ts';
export { policyNodes } from './complexity.ts';
export * from './evaluation.ts';
export {
  isMetricName,
  type MetricDescription,
  metricDescriptions,
  metricsText,
} from './metricDescriptions.ts';
export * from './objectives.ts';
export { LOST_MS, type RawMetrics, rawMetrics } from './rawMetrics.ts';
export { RunWatch } from './runWatch.ts';
export { meansBySetting, settingOf } from './settings.ts';
export { type EvaluationPlan, type SuiteCase, suiteNames } from './suite.ts';
