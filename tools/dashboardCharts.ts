/**
 * Writes the charts of the dashboard, `data/dashboard/charts.json`: `node tools/dashboardCharts.ts`. They stand here in
 * Vega-Lite, and there compiled to what the page's drawing library runs, so that a server compiles nothing while it serves. A
 * test holds that the file is what this gives. Colours follow the page: it sets them when it draws. Tiers have the colours of
 * Okabe and Ito, which the colour-blind tell apart.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { VegaLiteSpec } from '../src/io/printing/chart.ts';
import { importPeer } from '../src/observe/metrics/peer.ts';
import { tierColours } from '../src/observe/report/charts.ts';

const time = {
  field: 'at',
  type: 'quantitative',
  title: 'seconds',
  axis: { grid: false, tickCount: 6 },
} as const;
const series = {
  field: 'series',
  type: 'nominal',
  sort: null,
  legend: { orient: 'top', title: null, symbolType: 'square', columns: 3 },
} as const;

/** Common to all: the page fills the data named `rows`, and sets the signals `names`, `colours`, `most` and `width`. */
function chart(rest: VegaLiteSpec): VegaLiteSpec {
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    data: { name: 'rows' },
    params: [
      { name: 'names', value: [] },
      { name: 'colours', value: tierColours },
      { name: 'most', value: 1 },
    ],
    width: 300,
    height: 200,
    autosize: { type: 'fit', contains: 'padding' },
    background: 'transparent',
    config: {
      view: { stroke: null },
      font: 'system-ui, sans-serif',
      axis: { labelFontSize: 11, titleFontSize: 11 },
    },
    ...rest,
  };
}

const charts: Readonly<Record<string, VegaLiteSpec>> = {
  hits: chart({
    mark: { type: 'area', opacity: 0.8, interpolate: 'step-after', clip: true },
    encoding: {
      x: time,
      y: {
        field: 'value',
        type: 'quantitative',
        stack: 'zero',
        title: 'found, share of blocks',
        axis: { format: '%', tickCount: 4 },
        scale: { domain: [0, 1] },
      },
      color: series,
      order: { field: 'rank' },
      tooltip: [
        { field: 'series', title: 'tier' },
        { field: 'value', format: '.1%' },
        { field: 'at', title: 'seconds', format: '.1f' },
      ],
    },
  }),
  flows: chart({
    mark: { type: 'line', strokeWidth: 2 },
    encoding: {
      x: time,
      y: {
        field: 'value',
        type: 'quantitative',
        title: 'bytes a second',
        axis: { format: '.2s', tickCount: 4 },
      },
      color: series,
      tooltip: [
        { field: 'series', title: 'link' },
        { field: 'value', format: '.3s' },
      ],
    },
  }),
  gaps: chart({
    mark: { type: 'bar' },
    encoding: {
      x: {
        field: 'bucket',
        type: 'ordinal',
        sort: null,
        title: 'seconds from one use to the next, up to',
        axis: { labelAngle: -45 },
      },
      y: { field: 'value', type: 'quantitative', title: 'uses', axis: { tickCount: 4, format: '~s' } },
      color: series,
      tooltip: [
        { field: 'series', title: 'found in' },
        { field: 'bucket', title: 'up to, s' },
        { field: 'value', title: 'uses' },
      ],
    },
  }),
  queue: chart({
    mark: { type: 'line', strokeWidth: 2, interpolate: 'step-after' },
    encoding: {
      x: time,
      y: {
        field: 'value',
        type: 'quantitative',
        title: 'requests',
        axis: { tickCount: 4, tickMinStep: 1, format: 'd' },
      },
      color: series,
      tooltip: [{ field: 'series' }, { field: 'value' }],
    },
  }),
  evictions: chart({
    mark: { type: 'line', strokeWidth: 2 },
    encoding: {
      x: time,
      y: {
        field: 'value',
        type: 'quantitative',
        title: 'blocks a second',
        axis: { tickCount: 4, format: '~s' },
      },
      color: series,
      tooltip: [{ field: 'series' }, { field: 'value', format: '.2f' }],
    },
  }),
};

/**
 * Which series there are, in which colours, and how far up the values go is known to the page alone: Vega-Lite has no words
 * for that, and makes a scale of nothing but zeros whose ticks are no numbers.
 */
function withSignals(compiled: unknown, isShare: boolean): unknown {
  const spec = compiled as { readonly scales: readonly { readonly name: string }[] };
  const scales = spec.scales.map((scale) => {
    if (scale.name === 'color') {
      return { ...scale, domain: { signal: 'names' }, range: { signal: 'colours' } };
    }
    return scale.name === 'y' && !isShare ? { ...scale, domain: { signal: '[0, most]' } } : scale;
  });
  return { ...spec, scales };
}

const { compile } = await importPeer<{ compile(spec: unknown): { spec: unknown } }>(
  'vega-lite',
  'the charts of the dashboard',
);

/** By name. */
export const compiledCharts: Readonly<Record<string, unknown>> = Object.fromEntries(
  Object.entries(charts).map(([name, spec]) => [name, withSignals(compile(spec).spec, name === 'hits')]),
);

if (import.meta.main) {
  const file = join(import.meta.dirname, '..', 'data', 'dashboard', 'charts.json');
  writeFileSync(file, `${JSON.stringify(compiledCharts)}\n`);
}
