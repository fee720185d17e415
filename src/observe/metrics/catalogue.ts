/**
 * Every metric, in the order of the reference page. Exporters, that page and the dashboard of Grafana go by this list. What
 * vLLM has, in its meaning, has vLLM's name; in vLLM's own dashboards a sum over tiers gives the figure that they know.
 */

import { blockMetrics } from './blockMetrics.ts';
import type { Metric } from './metric.ts';
import { healthMetrics, requestMetrics } from './requestMetrics.ts';

/** All metrics of a runtime: name, unit, help, and what each is read from. */
export const metrics: readonly Metric[] = [...requestMetrics, ...blockMetrics, ...healthMetrics];
