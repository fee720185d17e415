/** The door `tierkv/metrics`: what a runtime does, for Prometheus and OpenTelemetry. */

export { type BlockNews, CacheMeasures, type SequenceStory, TierMeasures } from './cacheMeasures.ts';
export { type Metric, type MetricKind, metrics, type Sample, type Watched } from './catalogue.ts';
export { Histogram } from './histogram.ts';
export { type OpenTelemetryOptions, openTelemetry, openTelemetryName } from './openTelemetry.ts';
export { nameIn, type PrometheusMetrics, type PrometheusOptions, prometheus } from './prometheus.ts';
export { RequestMeasures, type RequestTimes, TenantMeasures } from './requestMeasures.ts';
export { RuntimeWatch, type WatchOptions, watchRuntime } from './watch.ts';
