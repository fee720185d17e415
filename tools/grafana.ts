/**
 * Writes the dashboard of Grafana, `docs/reference/grafana-dashboard.json`, from the list of metrics: `node tools/grafana.ts`.
 * A test holds that every metric that it asks for is in the list.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface Panel {
  readonly title: string;
  readonly unit: string;
  /** What is asked, and what a line is called. */
  readonly lines: readonly (readonly [query: string, legend: string])[];
  readonly kind?: 'timeseries' | 'stat' | 'heatmap' | undefined;
}

const at = '{model_name=~"$model"}';
const rateOf = (name: string, by = ''): string => `sum${by}(rate(${name}${at}[$__rate_interval]))`;
const quantile = (q: number, name: string, by = 'le'): string =>
  `histogram_quantile(${q}, sum by (${by}) (rate(${name}_bucket${at}[$__rate_interval])))`;

const panels: readonly Panel[] = [
  {
    title: 'Found, share of blocks',
    unit: 'percentunit',
    lines: [
      [
        `sum by (tier) (rate(tierkv_hit_blocks_total${at}[$__rate_interval])) / on() group_left() ${rateOf('tierkv_asked_blocks_total')}`,
        '{{tier}}',
      ],
    ],
  },
  {
    title: 'Tiers in use',
    unit: 'percentunit',
    lines: [
      [
        `sum by (tier) (tierkv_tier_resident_bytes${at}) / sum by (tier) (tierkv_tier_capacity_bytes${at})`,
        '{{tier}}',
      ],
    ],
  },
  {
    title: 'Requests',
    unit: 'short',
    lines: [
      [`sum(vllm:num_requests_running${at})`, 'run'],
      [`sum(vllm:num_requests_waiting${at})`, 'wait'],
      [`sum(tierkv_requests_waiting_for_room${at})`, 'wait for room'],
    ],
  },
  {
    title: 'Time to first token',
    unit: 's',
    lines: [
      [quantile(0.5, 'vllm:time_to_first_token_seconds'), 'p50'],
      [quantile(0.99, 'vllm:time_to_first_token_seconds'), 'p99'],
    ],
  },
  {
    title: 'Where the time of a request goes, mean',
    unit: 's',
    lines: [
      ['vllm:request_queue_time_seconds', 'wait for room'],
      ['tierkv_request_load_time_seconds', 'loads'],
      ['vllm:request_prefill_time_seconds', 'prefill'],
      ['vllm:request_decode_time_seconds', 'decode'],
    ].map(([name, legend]) => [`${rateOf(`${name}_sum`)} / ${rateOf(`${name}_count`)}`, legend] as const),
  },
  {
    title: 'Loads against stores',
    unit: 'Bps',
    lines: [
      [rateOf('vllm:kv_offload_load_bytes_total', ' by (tier) '), 'up from {{tier}}'],
      [rateOf('vllm:kv_offload_store_bytes_total', ' by (tier) '), 'down to {{tier}}'],
    ],
  },
  {
    title: 'Load time',
    unit: 's',
    lines: [
      [quantile(0.5, 'tierkv_load_duration_seconds', 'le, tier'), 'p50 {{tier}}'],
      [quantile(0.99, 'tierkv_load_duration_seconds', 'le, tier'), 'p99 {{tier}}'],
    ],
  },
  {
    title: 'Loads and stores that failed',
    unit: 'short',
    lines: [
      [rateOf('tierkv_load_failures_total', ' by (tier, reason) '), 'load {{tier}} {{reason}}'],
      [rateOf('tierkv_store_failures_total', ' by (tier, reason) '), 'store {{tier}} {{reason}}'],
      [rateOf('tierkv_load_deadline_misses_total', ' by (tier) '), 'late {{tier}}'],
    ],
  },
  {
    title: 'Load or recompute, blocks a second',
    unit: 'short',
    lines: [[rateOf('tierkv_prefix_choice_blocks_total', ' by (choice) '), '{{choice}}']],
  },
  {
    title: 'Evicted, dropped, came back, blocks a second',
    unit: 'short',
    lines: [
      [rateOf('tierkv_evicted_blocks_total', ' by (tier) '), 'evicted from {{tier}}'],
      [rateOf('tierkv_dropped_blocks_total', ' by (tier) '), 'dropped by {{tier}}'],
      [rateOf('tierkv_returned_blocks_total', ' by (tier) '), 'came back, {{tier}}'],
    ],
  },
  {
    title: 'Gap between uses, median',
    unit: 's',
    lines: [[quantile(0.5, 'vllm:kv_block_reuse_gap_seconds', 'le, tier'), '{{tier}}']],
  },
  {
    title: 'Unused for when evicted, median',
    unit: 's',
    lines: [[quantile(0.5, 'vllm:kv_block_idle_before_evict_seconds', 'le, tier'), '{{tier}}']],
  },
  {
    title: 'Tenants, bytes in all tiers',
    unit: 'bytes',
    lines: [[`sum by (tenant) (tierkv_tenant_resident_bytes${at})`, '{{tenant}}']],
  },
  {
    title: 'No room, skipped stores',
    unit: 'short',
    lines: [
      [rateOf('vllm:kv_offload_allocation_failure_total'), 'no room'],
      [rateOf('vllm:kv_offload_stores_skipped_total', ' by (reason) '), 'store skipped: {{reason}}'],
    ],
  },
];

export const grafanaDashboard: Readonly<Record<string, unknown>> = {
  title: 'tierkv',
  uid: 'tierkv',
  schemaVersion: 39,
  tags: ['tierkv', 'kv-cache'],
  time: { from: 'now-30m', to: 'now' },
  refresh: '10s',
  templating: {
    list: [
      { name: 'source', type: 'datasource', query: 'prometheus' },
      {
        name: 'model',
        type: 'query',
        datasource: { type: 'prometheus', uid: '$source' },
        query: 'label_values(tierkv_tier_capacity_bytes, model_name)',
        includeAll: true,
        allValue: '.*',
        current: { text: 'All', value: '$__all' },
      },
    ],
  },
  panels: panels.map(({ title, unit, lines, kind = 'timeseries' }, i) => ({
    id: i + 1,
    title,
    type: kind,
    datasource: { type: 'prometheus', uid: '$source' },
    gridPos: { x: (i % 2) * 12, y: Math.floor(i / 2) * 8, w: 12, h: 8 },
    fieldConfig: { defaults: { unit, min: 0, custom: { fillOpacity: 8, lineWidth: 2 } }, overrides: [] },
    targets: lines.map(([expr, legendFormat], n) => ({
      refId: String.fromCharCode(65 + n),
      expr,
      legendFormat,
    })),
  })),
};

if (import.meta.main) {
  const file = join(import.meta.dirname, '..', 'docs', 'reference', 'grafana-dashboard.json');
  writeFileSync(file, `${JSON.stringify(grafanaDashboard, null, 2)}\n`);
}
