/** The charts of the planner in Vega-Lite. Tiers and curves have colours that the colour-blind tell apart. */

import { parse, View } from 'vega';
import { compile, type TopLevelSpec } from 'vega-lite';
import type { PlanOutcome } from './plannerWorker.ts';

// Okabe and Ito
const [blue, orange, green, purple] = ['#0072B2', '#E69F00', '#009E73', '#CC79A7'];
const sky = '#56B4E9';

export type Rows = readonly Readonly<Record<string, string | number>>[];
type Field = { readonly [key: string]: unknown };

interface Drawn {
  readonly rows: Rows;
  /** Of the run that is kept to compare: drawn behind, grey and dashed. */
  readonly before: Rows;
  readonly names: readonly string[];
}

export const tierLabels: Readonly<Record<string, string>> = {
  hbm: 'GPU',
  ddr: 'host memory',
  nvme: 'disk',
  remote: 'remote',
};

const time: Field = {
  field: 's',
  type: 'quantitative',
  title: 'seconds',
  axis: { grid: false, tickCount: 6 },
};
const share = (title: string): Field => ({
  field: 'value',
  type: 'quantitative',
  title,
  axis: { format: '%', tickCount: 4 },
  scale: { domain: [0, 1] },
});

const curveRows = ({ curves }: PlanOutcome): Rows =>
  curves.flatMap(({ name, ms }) => ms.map((value, i) => ({ series: name, ms: value, value: i / 100 })));

function overTime({ tiers, moments }: PlanOutcome, pick: 'used' | 'found'): Rows {
  return moments.flatMap((moment) =>
    moment[pick].map((value, i) => ({ s: moment.s, series: tierLabels[tiers[i]], rank: i, value })),
  );
}

const queueRows = ({ moments }: PlanOutcome): Rows =>
  moments.flatMap(({ s, waiting, running }) => [
    { s, series: 'running', value: running },
    { s, series: 'waiting', value: waiting },
  ]);

interface Chart {
  readonly colours: readonly string[];
  rows(outcome: PlanOutcome): Rows;
  names(outcome: PlanOutcome): readonly string[];
  readonly mark: Field;
  readonly encoding: Field;
  /** Whether the kept run is drawn behind. */
  readonly compares: boolean;
}

const tierNames = ({ tiers }: PlanOutcome): readonly string[] => tiers.map((tier) => tierLabels[tier]);
const tierColours = [blue, orange, green, purple];

const charts: Readonly<Record<string, Chart>> = {
  latency: {
    colours: [blue, orange, green],
    rows: curveRows,
    names: ({ curves }) => curves.map(({ name }) => name),
    mark: { type: 'line', strokeWidth: 2.5, interpolate: 'monotone' },
    encoding: {
      x: {
        field: 'ms',
        type: 'quantitative',
        scale: { type: 'log' },
        title: 'milliseconds',
        axis: { tickCount: 6, labelOverlap: 'greedy', labelExpr: "format(datum.value, ',')" },
      },
      y: share('requests'),
    },
    compares: true,
  },
  hits: {
    colours: tierColours,
    rows: (outcome) => overTime(outcome, 'found'),
    names: tierNames,
    mark: { type: 'area', opacity: 0.85 },
    encoding: { x: time, y: { ...share('blocks'), stack: 'zero' }, order: { field: 'rank' } },
    compares: false,
  },
  tiers: {
    colours: tierColours,
    rows: (outcome) => overTime(outcome, 'used'),
    names: tierNames,
    mark: { type: 'line', strokeWidth: 2, interpolate: 'step-after' },
    encoding: { x: time, y: share('in use') },
    compares: true,
  },
  queue: {
    colours: [sky, orange],
    rows: queueRows,
    names: () => ['running', 'waiting'],
    mark: { type: 'line', strokeWidth: 2, interpolate: 'step-after' },
    encoding: {
      x: time,
      y: { field: 'value', type: 'quantitative', title: 'requests', axis: { tickCount: 4 } },
    },
    compares: true,
  },
};

export const chartNames: readonly string[] = Object.keys(charts);

function specOf(chart: Chart, { rows, before, names }: Drawn, dark: boolean, width: number): TopLevelSpec {
  const ink = dark ? '#93a4b5' : '#5d6b7a';
  const line = dark ? '#2b3744' : '#dfe3e8';
  const isArea = chart.mark.type === 'area';
  const symbol = isArea
    ? { symbolType: 'square' }
    : { symbolType: 'stroke', symbolStrokeWidth: 3, symbolSize: 160 };
  const color = {
    field: 'series',
    type: 'nominal',
    sort: null,
    scale: { domain: names, range: chart.colours.slice(0, names.length) },
    legend: { orient: 'top', title: null, columns: 4, ...symbol },
  };
  const kept = {
    data: { values: before },
    mark: { ...chart.mark, strokeWidth: 1.5, strokeDash: [5, 4] },
    encoding: { ...chart.encoding, detail: { field: 'series' }, color: { value: ink } },
  };
  const now = { data: { values: rows }, mark: chart.mark, encoding: { ...chart.encoding, color } };
  const axis = { labelColor: ink, titleColor: ink, domainColor: line, tickColor: line, gridColor: line };
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    width,
    height: 240,
    autosize: { type: 'fit', contains: 'padding' },
    background: 'transparent',
    layer: before.length > 0 && chart.compares ? [kept, now] : [now],
    config: {
      view: { stroke: null },
      font: 'system-ui, sans-serif',
      axis: { labelFontSize: 11, titleFontSize: 11, titleFontWeight: 'normal', ...axis },
      legend: { labelColor: dark ? '#e6edf4' : '#1b2430', labelFontSize: 12 },
    },
  } as unknown as TopLevelSpec; // the parts are plain data, which the compiler checks
}

const views = new Map<string, View>();

/** Draws all charts anew. @param before a run to compare with */
export async function draw(
  outcome: PlanOutcome,
  before: PlanOutcome | undefined,
  dark: boolean,
): Promise<void> {
  await Promise.all(
    Object.entries(charts).map(async ([name, chart]) => {
      const place = document.getElementById(name)!;
      const drawn: Drawn = {
        rows: chart.rows(outcome),
        before: before === undefined ? [] : chart.rows(before),
        names: chart.names(outcome),
      };
      const { spec } = compile(specOf(chart, drawn, dark, place.clientWidth));
      views.get(name)?.finalize();
      const view = new View(parse(spec), { renderer: 'svg', container: place });
      views.set(name, view);
      await view.runAsync();
    }),
  );
}
