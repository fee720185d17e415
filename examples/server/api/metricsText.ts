/** The metrics of the server for Prometheus: what `tierkv/observe` has of its runtime, under the model's name. */

import { prometheus, watchRuntime } from '../../../src/observe/index.ts'; // in your project: 'tierkv/observe'
import type { ServedEngine } from '../engine/index.ts';

/** A page of the metrics: called at each scrape. */
export type MetricsPage = () => Promise<string>;

export function metricsPage({ cache }: Pick<ServedEngine, 'cache'>, model: string): MetricsPage {
  const labels = { model_name: model, engine: '0' };
  const made = prometheus(watchRuntime(cache.kv), { labels });
  made.catch(() => {}); // told by the first scrape
  return async () => (await made).text();
}
