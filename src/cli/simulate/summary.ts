/** What a simulation prints: upstream's sections, each only where it has something to say. */

import type { Simulation } from '../../sim/cluster/index.ts';
import type { MetricsOutput } from '../../sim/report/index.ts';
import { jsonText } from './metricsFile.ts';

function metricsSection(metrics: MetricsOutput): string {
  const { requests: _rows, cache_hit_rate: _rate, ...shown } = metrics;
  return `=== Simulation Metrics ===\n${jsonText(shown)}\n`;
}

function kvSection(metrics: MetricsOutput): string {
  const { completed_requests: completed, preemption_count: preemptions, cache_hit_rate: hitRate } = metrics;
  if (preemptions === 0 && hitRate === 0) return '';
  const rate = completed === 0 ? 0 : preemptions / completed;
  return (
    '=== KV Cache Metrics ===\n' +
    `Preemption Rate: ${rate.toFixed(4)}\n` +
    `Cache Hit Rate: ${hitRate.toFixed(4)}\n`
  );
}

export function summaryText(
  _simulation: Simulation,
  cluster: MetricsOutput,
  perInstance: readonly MetricsOutput[],
): string {
  return [...perInstance, cluster].map(metricsSection).join('') + kvSection(cluster);
}
