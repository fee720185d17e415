/** The door `tierkv/observe` in a page or a worker: metrics of a runtime and explanations, without servers and files. */

export type { BlockExplanation, CacheExplanation, MissCause } from '../embed/explanation.ts';
export { explanationText } from './explain/explanationText.ts';
export { metrics } from './metrics/catalogue.ts';
export type { MeasuredMetric } from './metrics/metric.ts';
export { type OpenTelemetryOptions, openTelemetry } from './metrics/openTelemetry.ts';
export {
  type PrometheusMetrics,
  type PrometheusOptions,
  prometheus,
} from './metrics/prometheus.ts';
export { RuntimeWatch, type WatchOptions, watchRuntime } from './metrics/watch.ts';
