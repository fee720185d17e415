/** GB/s against unit size: one panel a link, a line for tierkv and each of what it stands beside. */

import type { VegaLiteSpec } from '../../chart.ts';
import type { LinkRow } from './row.ts';

const series = [
  ['limit', 'limitGbps'],
  ['all stages at once', 'togetherGbps'],
  ['single transfer', 'singleGbps'],
  ['naive', 'naiveGbps'],
] as const;

export function plotOf(rows: readonly LinkRow[]): VegaLiteSpec {
  const values = rows.flatMap((row) => {
    const panel = `${row.link}, ${row.pattern}`;
    const kib = row.bytes / 1024;
    return [
      {
        panel,
        kib,
        way: row.verify === 'none' ? 'tierkv' : `tierkv, verified: ${row.verify}`,
        gbps: row.gbps,
      },
      ...series.flatMap(([way, field]) => {
        const gbps = row[field];
        return gbps === undefined ? [] : [{ panel, kib, way, gbps }];
      }),
    ];
  });
  const [first] = rows;
  const software = rows.some((row) => row.software);
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title: `Links on ${first?.adapter ?? 'no adapter'}${software ? ' (SOFTWARE device)' : ''}`,
    data: { values },
    facet: { field: 'panel', type: 'nominal', columns: 2, title: null, sort: null },
    spec: {
      width: 320,
      height: 180,
      mark: { type: 'line', point: true },
      encoding: {
        x: { field: 'kib', type: 'quantitative', scale: { type: 'log', base: 2 }, title: 'unit, KiB' },
        y: { aggregate: 'median', field: 'gbps', type: 'quantitative', title: 'GB/s' },
        color: { field: 'way', type: 'nominal', title: null },
      },
    },
  };
}
