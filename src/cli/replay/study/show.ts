/** A study as a table and as a chart. */

import { formatCount, formatCounted, renderTable, type VegaLiteSpec } from '../../output/index.ts';
import type { Study } from './compare.ts';

export function renderStudy(study: Study): string {
  const { requests, lookups, blockTokens, lower } = study;
  const below = lower[0] + lower[1] === 0 ? '' : `, over DDR ${lower[0]} and NVMe ${lower[1]} blocks`;
  const size = `${formatCounted(lookups, 'blocks')} of ${formatCounted(blockTokens, 'tokens')}`;
  const title = `policies: ${formatCounted(requests, 'requests')}, ${size}`;
  const rows = study.rows.map((row) => [
    formatCount(row.capacity),
    row.policy,
    formatCount(row.hits),
    row.hitPercent.toFixed(3),
    row.closedPercent === null ? '-' : row.closedPercent.toFixed(1),
    row.points.toFixed(3),
    row.nsPerBlock === null ? '-' : row.nsPerBlock.toFixed(0),
  ]);
  return `${title}${below}\n${renderTable(
    [
      { title: 'HBM blocks', align: 'right' },
      { title: 'policy' },
      { title: 'hits', align: 'right' },
      { title: 'hit %', align: 'right' },
      { title: 'gap closed %', align: 'right' },
      { title: 'points over lru', align: 'right' },
      { title: 'ns a block', align: 'right' },
    ],
    rows,
  )}`;
}

/** Hit rate over capacity, one line a policy; what a single capacity gives are bars. */
export function studyChart(title: string, study: Study): VegaLiteSpec {
  const values = study.rows.map(({ capacity, policy, hitPercent }) => ({ capacity, policy, hitPercent }));
  const several = new Set(values.map(({ capacity }) => capacity)).size > 1;
  const hits = { field: 'hitPercent', type: 'quantitative', title: 'blocks found (%)' };
  const policy = { field: 'policy', type: 'nominal', title: null };
  const lines = {
    mark: { type: 'line', point: true },
    encoding: {
      x: { field: 'capacity', type: 'quantitative', scale: { type: 'log' }, title: 'HBM blocks' },
      y: hits,
      color: policy,
      strokeDash: policy,
    },
  };
  const bars = { mark: 'bar', encoding: { x: hits, y: { ...policy, sort: null } } };
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title,
    background: 'white',
    width: 520,
    height: several ? 300 : 160,
    data: { values },
    ...(several ? lines : bars),
  };
}
