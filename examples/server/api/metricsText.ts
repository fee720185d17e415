/**
 * Metrics in the text format of Prometheus, under the names that vLLM gives them, so that its dashboards fit;
 * tierkv's own counters follow under `tierkv:`. Hits of the prefix cache count tokens. `external` is what was
 * found below HBM.
 */

import { type Engine, Histogram } from '../engine/index.ts';

type Value = number | Histogram | Readonly<Record<string, number>>;

export function metricsText(engine: Engine, model: string): string {
  const { counters: done, cache } = engine;
  const { counters: kv, gauges } = cache.kv.metrics();
  const of = (name: string): number => kv[name] ?? 0;
  const { blockTokens } = cache.layout;
  const below = of('hits.ddr') + of('hits.nvme');
  const asked = of('hits.hbm') + below + of('misses');
  const links = (...names: string[]): number => names.reduce((sum, name) => sum + of(name), 0);
  const [down, up] = [
    ['hbmToDdr', 'hbmToNvme', 'ddrToNvme'],
    ['ddrToHbm', 'nvmeToHbm', 'nvmeToDdr'],
  ];
  const moved = (what: string, names: string[]): number => links(...names.map((name) => `${what}.${name}`));
  const used = (gauges['residentBytes.hbm'] ?? 0) / (gauges['capacityBytes.hbm'] ?? 1);
  const vllm: Record<string, Value> = {
    num_requests_running: engine.running,
    num_requests_waiting: engine.size - engine.running,
    kv_cache_usage_perc: used,
    num_preemptions_total: cache.scheduler.counters.preemptions,
    prompt_tokens_total: done.promptTokens,
    generation_tokens_total: done.generationTokens,
    prompt_tokens_cached_total: done.cachedTokens,
    request_success_total: {
      stop: done.finished.stop,
      length: done.finished.length,
      abort: done.finished.cancelled,
      error: done.finished.error,
    },
    prefix_cache_queries_total: asked * blockTokens,
    prefix_cache_hits_total: of('hits.hbm') * blockTokens,
    external_prefix_cache_queries_total: (asked - of('hits.hbm')) * blockTokens,
    external_prefix_cache_hits_total: below * blockTokens,
    time_to_first_token_seconds: done.timeToFirstToken,
    inter_token_latency_seconds: done.interTokenLatency,
    e2e_request_latency_seconds: done.endToEnd,
    request_queue_time_seconds: done.queueTime,
    request_prefill_time_seconds: done.prefillTime,
    request_decode_time_seconds: done.decodeTime,
    kv_block_lifetime_seconds: done.blockLifetime,
    kv_block_idle_before_evict_seconds: done.blockIdleBeforeEvict,
    kv_block_reuse_gap_seconds: done.blockReuseGap,
    kv_offload_store_bytes_total: moved('movedBytes', down),
    kv_offload_load_bytes_total: moved('movedBytes', up),
    kv_offload_store_time_total: moved('busySeconds', down),
    kv_offload_load_time_total: moved('busySeconds', up),
    kv_offload_stores_skipped_total: of('demotionsSkipped'),
    kv_offload_allocation_failure_total: of('refusedAllocations'),
  };
  const lines: string[] = [];
  const labels = `${label('model_name', model)},${label('engine', '0')}`;
  for (const [name, value] of Object.entries(vllm)) append(lines, `vllm:${name}`, labels, value);
  for (const [name, value] of Object.entries(kv)) {
    if (name !== loadsThatDidNotFail) append(lines, `tierkv:${counterName(name)}`, labels, value);
  }
  for (const [name, value] of Object.entries(gauges)) append(lines, `tierkv:${snake(name)}`, labels, value);
  return `${lines.join('\n')}\n`;
}

/** The runtime counts ends of loads by outcome, and loaded is the one that cannot fail: it stays 0. */
const loadsThatDidNotFail = 'loadsFailed.loaded';

/** `_total` says once that it only grows. */
function counterName(name: string): string {
  return `${snake(name).replace(/_total$/, '')}_total`;
}

/** As the text format wants it: a backslash, a quote or a line break would end the value or the line. */
function label(name: string, value: string): string {
  const escaped = value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
  return `${name}="${escaped}"`;
}

function append(lines: string[], name: string, labels: string, value: Value): void {
  if (value instanceof Histogram) {
    lines.push(`# TYPE ${name} histogram`);
    let count = 0;
    value.counts.forEach((here, i) => {
      count += here;
      const bound = value.bounds[i] ?? '+Inf';
      lines.push(`${name}_bucket{${labels},${label('le', String(bound))}} ${count}`);
    });
    lines.push(`${name}_sum{${labels}} ${value.sum}`, `${name}_count{${labels}} ${count}`);
    return;
  }
  lines.push(`# TYPE ${name} ${name.endsWith('_total') ? 'counter' : 'gauge'}`);
  if (typeof value === 'number') lines.push(`${name}{${labels}} ${value}`);
  else {
    for (const [reason, count] of Object.entries(value)) {
      lines.push(`${name}{${labels},${label('finished_reason', reason)}} ${count}`);
    }
  }
}

function snake(name: string): string {
  return name.replaceAll('.', '_').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
