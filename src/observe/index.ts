/** The door `tierkv/observe`: metrics, the dashboard, explanations of what was found, and reports. */

import '../requireNode.ts';

export type { BlockExplanation, CacheExplanation, MissCause } from '../embed/explanation.ts';
export {
  type Dashboard,
  type DashboardOptions,
  type DashboardServer,
  dashboard,
  followedLogDashboard,
  logDashboard,
  serveDashboard,
} from './dashboard/dashboard.ts';
export { explainSimulation } from './explain/explainSimulation.ts';
export { explanationText } from './explain/explanationText.ts';
export { LogExplainer } from './explain/logExplainer.ts';
export { metrics } from './metrics/catalogue.ts';
export type { MeasuredMetric } from './metrics/metric.ts';
export { type OpenTelemetryOptions, openTelemetry } from './metrics/openTelemetry.ts';
export { type PrometheusMetrics, type PrometheusOptions, prometheus } from './metrics/prometheus.ts';
export { RuntimeWatch, type WatchOptions, watchRuntime } from './metrics/watch.ts';
export type { Report, ReportSection } from './report/model.ts';
export { reportPage } from './report/page.ts';
export { requireReportTarget, writeReport } from './report/writeReport.ts';
