/** The door `tierkv/metrics`: what a runtime or a gateway does, for Prometheus and OpenTelemetry. */

export { type BlockNews, CacheMeasures, type SequenceStory, TierMeasures } from './cacheMeasures.ts';
export { metrics } from './catalogue.ts';
export { ValueHistogram } from './histogram.ts';
export type { MeasuredMetric, Metric, MetricKind, MetricSample, MetricSource, Watched } from './metric.ts';
export { type OpenTelemetryOptions, openTelemetry, openTelemetryName } from './openTelemetry.ts';
export { nameIn, type PrometheusMetrics, type PrometheusOptions, prometheus } from './prometheus.ts';
export { RequestMeasures, type RequestMoments, TenantMeasures } from './requestMeasures.ts';
export { RuntimeWatch, type WatchOptions, watchRuntime } from './watch.ts';
