/**
 * GB/s by unit size: a panel for each link and pattern, three in a row; a line for tierkv, its limit and each
 * peer, dashed where nothing is verified.
 */

import type { VegaLiteSpec } from '../../output/index.ts';
import type { LinkRow } from './row.ts';

/** @param device what was measured, for the title */
export function plotOf(rows: readonly LinkRow[], device: string): VegaLiteSpec {
  const values = rows.flatMap((row) => {
    const { gbps: tierkv, limitGbps: limit, singleGbps: single, bulkGbps: bulk } = row;
    return Object.entries({ tierkv, limit, single, bulk }).map(([line, gbps]) => ({
      panel: `${row.link}, ${row.pattern}`,
      kib: row.unitBytes / 1024,
      line,
      checks: row.verified ? 'verified' : 'unverified',
      gbps,
    }));
  });
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title: `Links on ${device}`,
    data: { values: values.filter(({ gbps }) => gbps !== undefined) },
    facet: { field: 'panel', type: 'nominal', title: null, sort: null },
    columns: 3, // a property of the whole: within `facet` it is not read
    spec: {
      width: 280,
      height: 150,
      mark: { type: 'line', point: true },
      encoding: {
        x: { field: 'kib', type: 'quantitative', scale: { type: 'log', base: 2 }, title: 'unit, KiB' },
        y: { field: 'gbps', type: 'quantitative', title: 'GB/s' },
        color: { field: 'line', type: 'nominal', title: null },
        strokeDash: { field: 'checks', type: 'nominal', title: null, sort: ['verified', 'unverified'] },
      },
    },
  };
}
