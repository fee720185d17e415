/**
 * The charts of a report in Vega-Lite, compiled to what the page's drawing library runs. The page sets the width and, in a
 * timeline, the seconds that are shown. Series have the colours of Okabe and Ito, which the colour-blind tell apart, and
 * lines are dashed differently, so that they are told apart in grey print.
 */

import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import { importPeer } from '../metrics/peer.ts';
import type {
  BarsSection,
  DistributionsSection,
  LinesSection,
  PointsSection,
  ReportSection,
  TimelineLane,
  TimelineSection,
  Unit,
} from './model.ts';
import { written } from './model.ts';

/** A chart that the page draws: what Vega runs, and the rows that it is drawn of. */
export interface ReportChart {
  readonly id: string;
  readonly title: string;
  readonly note: string;
  /** Its axis of time goes with the timeline. */
  readonly isOfTimeline: boolean;
  readonly spec: unknown;
  readonly rows: readonly object[];
  /** For readers without scripts, and for screen readers. */
  readonly description: string;
}

interface DraftChart extends Omit<ReportChart, 'spec'> {
  readonly spec: VegaLiteSpec;
}

/** How Vega writes the numbers of an axis. */
const axisFormats: Readonly<Record<Unit, string>> = {
  count: '~s',
  ms: ',~g',
  s: '~g',
  share: '~%',
  bytes: '~s',
  perS: '~s',
  tokensPerS: '~s',
  bytesPerS: '~s',
  plain: '~s',
};

/** A size on an axis, in powers of 1024. */
const bytesLabel =
  "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~g') + ' GiB' : datum.value >= 1048576 ? " +
  "format(datum.value / 1048576, '~g') + ' MiB' : datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : datum.label";

/** Numbers on an axis; a plain 0 where the others have a thousand, a million, ... behind them. */
function labelsOf(unit: Unit): { readonly format: string; readonly labelExpr: string } {
  return {
    format: axisFormats[unit],
    labelExpr: unit === 'bytes' ? bytesLabel : "datum.value === 0 ? '0' : datum.label",
  };
}

const unitNames: Readonly<Record<Unit, string>> = {
  count: '',
  ms: 'ms',
  s: 's',
  share: '',
  bytes: '',
  perS: 'a second',
  tokensPerS: 'tokens a second',
  bytesPerS: 'bytes a second',
  plain: '',
};

function titled(title: string, unit: Unit): string {
  const name = unitNames[unit];
  return name === '' || title.endsWith(name) ? title : `${title} (${name})`;
}

/** Colours of tiers by position, after Okabe and Ito; the dashboard uses the same. */
export const tierColours: readonly string[] = [
  '#0072B2',
  '#E69F00',
  '#009E73',
  '#CC79A7',
  '#D55E00',
  '#56B4E9',
];

/** Colours of series: those of tiers, and two more that differ in grey too. */
const seriesColours: readonly string[] = [...tierColours, '#7F8A95', '#9A6B2F'];

/** Series that a row of a legend has where the page is wide. */
const LEGEND_COLUMNS = 4;

const color = {
  field: 'series',
  type: 'nominal',
  sort: null,
  scale: { range: seriesColours },
  legend: {
    orient: 'top',
    title: null,
    symbolType: 'stroke',
    symbolStrokeWidth: 3,
    columns: { expr: `width < 300 ? 1 : width < 560 ? 2 : ${LEGEND_COLUMNS}` },
    labelLimit: 260,
  },
} as const;

const dash = { field: 'series', type: 'nominal', sort: null, legend: color.legend } as const;

function base(height: number, rest: VegaLiteSpec): VegaLiteSpec {
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    data: { name: 'rows' },
    width: 600,
    height,
    autosize: { type: 'fit', contains: 'padding' },
    background: 'transparent',
    config: {
      view: { stroke: null },
      font: 'system-ui, sans-serif',
      axis: {
        labelFontSize: 11,
        titleFontSize: 11,
        titleFontWeight: 'normal',
        labelOverlap: 'greedy',
        labelSeparation: 6,
      },
      legend: { labelFontSize: 11 },
    },
    ...rest,
  };
}

interface ChartAxis {
  readonly title: string;
  readonly unit: Unit;
  readonly isLog?: boolean;
}

/** Lines without a label are of a scale of logarithms: between its numbers, and faint. */
const faintBetween = { condition: { test: "datum.label === ''", value: 0.25 }, value: 1 } as const;
/** Most values that are the ticks of their axis themselves. */
const OWN_TICKS = 8;

/** @param values that are drawn: a scale of one value alone has no ticks, so it gets some room */
function axis({ title, unit, isLog = false }: ChartAxis, values: readonly number[], padding = 0): object {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const own = [...new Set(values)].sort((a, b) => a - b);
  const hasOwnTicks = own.length > 1 && own.length <= OWN_TICKS && own.every(Number.isInteger);
  const room = isLog ? { domain: [least / 2, most * 2] } : { domain: [least - 1, most + 1] };
  return {
    type: 'quantitative',
    title: titled(title, unit),
    axis: {
      ...labelsOf(unit),
      tickCount: 6,
      ...(unit === 'count' && own.every(Number.isInteger) ? { tickMinStep: 1 } : {}),
      ...(isLog ? { gridOpacity: faintBetween } : {}),
      ...(unit === 'count' && hasOwnTicks ? { values: own } : {}),
    },
    scale: {
      ...(isLog ? { type: 'log', ...(unit === 'bytes' ? { base: 2 } : {}) } : { zero: false }),
      ...(unit === 'count' && isLog ? { nice: false, padding: 12 } : {}),
      ...(values.length > 0 && least === most ? room : {}),
      ...(padding === 0 ? {} : { padding }),
    },
  };
}

function linesChart(section: LinesSection, id: string): DraftChart {
  const rows = section.series.flatMap(({ name, points }) => points.map(([x, y]) => ({ x, y, series: name })));
  return {
    ...headOf(section, id),
    rows,
    spec: base(240, {
      mark: { type: 'line', strokeWidth: 2, point: rows.length < 60, clip: true },
      encoding: {
        x: {
          field: 'x',
          ...axis(
            section.x,
            rows.map(({ x }) => x),
          ),
        },
        y: {
          field: 'y',
          ...axis(
            section.y,
            rows.map(({ y }) => y),
          ),
        },
        color,
        strokeDash: dash,
        tooltip: tooltips('series', ['x', section.x.title], ['y', section.y.title]),
      },
    }),
  };
}

/** Pixels between the outermost points and the frame: the name of the chosen one has room there. */
const PADDING = 32;

function pointsChart(section: PointsSection, id: string): DraftChart {
  const rows = section.points.map(({ x, y, name, group, isChosen }) => ({
    x,
    y,
    name,
    series: group ?? '',
    chosen: isChosen === true ? 'the answer' : '',
  }));
  // in one order whatever comes first: the same group has the same colour in every report
  const groups = [...new Set(rows.map(({ series }) => series))].sort();
  const hasGroups = groups.some((group) => group !== '');
  const x = {
    field: 'x',
    ...axis(
      section.x,
      rows.map((row) => row.x),
      PADDING,
    ),
  };
  const heights = rows.map((row) => row.y);
  const upwards = section.y.isLog !== true && heights.every((value) => value >= 0);
  const y = {
    field: 'y',
    ...axis(section.y, heights, upwards ? 0 : PADDING),
    // what cannot be below 0 has no axis below it; the name of the chosen one has room above
    ...(upwards ? { scale: { domain: [0, 1.15 * Math.max(...heights, 1e-9)] } } : {}),
  };
  return {
    ...headOf(section, id),
    rows,
    spec: base(300, {
      layer: [
        {
          mark: { type: 'point', filled: true, size: 80, opacity: 0.85 },
          encoding: {
            x,
            y,
            ...(hasGroups
              ? {
                  color: { ...color, sort: groups, legend: { ...color.legend, symbolType: 'circle' } },
                  shape: {
                    field: 'series',
                    type: 'nominal',
                    sort: groups,
                    legend: { ...color.legend, symbolType: 'circle' },
                  },
                }
              : { color: { value: tierColours[0] } }),
            tooltip: tooltips('name', ['x', section.x.title], ['y', section.y.title]),
          },
        },
        {
          transform: [{ filter: "datum.chosen !== ''" }],
          mark: { type: 'point', size: 320, strokeWidth: 2, color: tierColours[4] },
          encoding: { x, y },
        },
        {
          transform: [{ filter: "datum.chosen !== ''" }],
          mark: { type: 'text', dy: -17, fontWeight: 600, color: tierColours[4] },
          encoding: { x, y, text: { field: 'chosen' } },
        },
      ],
    }),
  };
}

const BAR_HEIGHT = 24;

function barsChart(section: BarsSection, id: string): DraftChart {
  const rows = section.bars.map(({ name, value, low, high, group, isChosen }) => ({
    name,
    value,
    low: low ?? value,
    high: high ?? value,
    series: group ?? '',
    chosen: isChosen === true,
    text: written(value, section.unit),
  }));
  const names = new Set(rows.map(({ name }) => name)).size;
  const groups = new Set(rows.map(({ series }) => series)).size;
  const y = { field: 'name', type: 'nominal', sort: null, title: null, axis: { labelLimit: 260 } };
  const offset = groups > 1 ? { yOffset: { field: 'series', sort: null } } : {};
  const x = {
    type: 'quantitative',
    title: unitNames[section.unit] || null,
    axis: { ...labelsOf(section.unit), tickCount: 6 },
    scale: { zero: true },
  };
  return {
    ...headOf(section, id),
    rows,
    spec: base(Math.max(70, names * Math.max(BAR_HEIGHT, groups * 17) + (groups > 1 ? 80 : 40)), {
      layer: [
        {
          mark: { type: 'bar', cornerRadiusEnd: 2 },
          encoding: {
            x: { field: 'value', ...x },
            y,
            ...offset,
            color:
              groups > 1
                ? { ...color, legend: { ...color.legend, symbolType: 'square' } }
                : {
                    condition: { test: 'datum.chosen', value: tierColours[2] },
                    value: tierColours[0],
                  },
            tooltip: tooltips('name', ['text', 'value'], ['low', 'from'], ['high', 'to']),
          },
        },
        {
          mark: { type: 'rule', strokeWidth: 2, color: '#7a8794' },
          encoding: { x: { field: 'low', type: 'quantitative' }, x2: { field: 'high' }, y, ...offset },
        },
      ],
    }),
  };
}

function distributionsChart(section: DistributionsSection, id: string): DraftChart {
  const rows: object[] = section.series.flatMap(({ name, quantiles }) =>
    quantiles.flatMap(
      (value, i) => (value > 0 ? [{ value, share: i / (quantiles.length - 1), series: name }] : []), // a scale of logarithms has no 0
    ),
  );
  for (const { name, target } of section.series) {
    if (target === undefined) continue;
    rows.push({ value: target.most, share: target.share, series: name, target: `target of ${name}` });
  }
  const share = {
    field: 'share',
    type: 'quantitative',
    title: 'share of requests',
    axis: { format: '%', values: [0, 0.25, 0.5, 0.75, 0.9, 0.99] },
    scale: { domain: [0, 1] },
  };
  const value = {
    field: 'value',
    type: 'quantitative',
    title: unitNames[section.unit] || null,
    scale: { type: 'log' },
    axis: { ...labelsOf(section.unit), tickCount: 6, gridOpacity: faintBetween },
  };
  return {
    ...headOf(section, id),
    rows,
    spec: base(260, {
      layer: [
        {
          transform: [{ filter: '!isValid(datum.target)' }],
          mark: { type: 'line', strokeWidth: 2 },
          encoding: {
            x: value,
            y: share,
            color,
            strokeDash: dash,
            tooltip: tooltips('series', ['value', 'at most'], ['share', 'share']),
          },
        },
        {
          transform: [{ filter: 'isValid(datum.target)' }],
          mark: { type: 'rule', strokeDash: [3, 3], strokeWidth: 1.5 },
          encoding: { x: value, color },
        },
        {
          transform: [{ filter: 'isValid(datum.target)' }],
          mark: { type: 'point', shape: 'triangle-left', size: 110, filled: true },
          encoding: {
            x: value,
            y: share,
            color,
            tooltip: tooltips('target', ['value', 'at most'], ['share', 'share']),
          },
        },
      ],
    }),
  };
}

/** Pixels of a lane with one row of its legend, and of each further row. */
const LANE_HEIGHT = 110;
const LEGEND_ROW = 16;

function laneChart(lane: TimelineLane, id: string): DraftChart {
  const legendRows = Math.max(1, Math.ceil(lane.series.length / LEGEND_COLUMNS));
  const rows = lane.series.flatMap(({ name, points }) => points.map(([x, y]) => ({ x, y, series: name })));
  return {
    id,
    title: lane.name,
    note: '',
    isOfTimeline: true,
    description: `${lane.name} over time: ${lane.series.map(({ name }) => name).join(', ')}`,
    rows,
    spec: base(LANE_HEIGHT + LEGEND_ROW * (legendRows - 1), {
      mark: lane.isStacked
        ? { type: 'area', interpolate: 'step-after', opacity: 0.75, clip: true }
        : { type: 'line', interpolate: 'step-after', strokeWidth: 1.6, clip: true },
      encoding: {
        x: { field: 'x', type: 'quantitative', title: null, axis: { grid: false, tickCount: 8 } },
        y: {
          field: 'y',
          type: 'quantitative',
          title: unitNames[lane.unit] || null,
          stack: lane.isStacked ? 'zero' : null,
          axis: { tickCount: 3, ...labelsOf(lane.unit), minExtent: 46, maxExtent: 46 },
          // a scale of nothing but zeros has no ticks
          scale: rows.some(({ y }) => y !== 0) ? { zero: true } : { domain: [0, 1] },
        },
        color:
          lane.series.length < 2
            ? { ...color, legend: null }
            : lane.isStacked
              ? { ...color, legend: { ...color.legend, symbolType: 'square', symbolStrokeWidth: 0 } }
              : color,
        ...(lane.isStacked || lane.series.length < 2 ? {} : { strokeDash: dash }),
        tooltip: tooltips('series', ['x', 's'], ['y', lane.name]),
      },
    }),
  };
}

const EVENT_KINDS = ['scaling', 'anomaly', 'transfer'];

function eventsChart({ events }: TimelineSection, id: string): DraftChart {
  const kinds = EVENT_KINDS.filter((kind) => events.some((event) => event.kind === kind));
  return {
    id,
    title: 'events',
    note: '',
    isOfTimeline: true,
    description: `${events.length} events: scaling, anomalies, transfers`,
    rows: events.map(({ s, what, kind }) => ({ x: s, what, series: kind })),
    spec: base(30 + 18 * kinds.length, {
      mark: { type: 'tick', thickness: 2, clip: true },
      encoding: {
        x: { field: 'x', type: 'quantitative', title: null, axis: { grid: false, tickCount: 8 } },
        y: {
          field: 'series',
          type: 'nominal',
          title: null,
          sort: null,
          axis: { minExtent: 46, maxExtent: 60 },
        },
        color: { ...color, legend: null },
        tooltip: tooltips('what', ['x', 's']),
      },
    }),
  };
}

function tooltips(first: string, ...rest: readonly (readonly [string, string])[]): object[] {
  return [{ field: first, title: ' ' }, ...rest.map(([field, title]) => ({ field, title }))];
}

function headOf(
  { title, note = '', kind }: { readonly title: string; readonly note?: string; readonly kind: string },
  id: string,
): Pick<ReportChart, 'id' | 'title' | 'note' | 'isOfTimeline' | 'description'> {
  return { id, title, note, isOfTimeline: false, description: `${title} (${kind})` };
}

function draftsOf(section: ReportSection, id: string): DraftChart[] {
  if (section.kind === 'lines') return [linesChart(section, id)];
  if (section.kind === 'points') return [pointsChart(section, id)];
  if (section.kind === 'bars') return [barsChart(section, id)];
  if (section.kind === 'distributions') return [distributionsChart(section, id)];
  if (section.kind !== 'timeline') return [];
  const lanes = section.lanes.map((lane, i) => laneChart(lane, `${id}-${i}`));
  return section.events.length === 0 ? lanes : [...lanes, eventsChart(section, `${id}-events`)];
}

/**
 * The charts of each section, compiled.
 * @throws TKV_CONFIG where vega-lite is not installed
 */
export async function chartsOf(
  sections: readonly ReportSection[],
): Promise<readonly (readonly ReportChart[])[]> {
  const { compile } = await importPeer<{ compile(spec: unknown): { spec: unknown } }>(
    'vega-lite',
    'the charts of a report',
  );
  return sections.map((section, i) =>
    draftsOf(section, `chart-${i}`).map((draft) => {
      const compiled = compile(draft.spec).spec;
      return { ...draft, spec: draft.isOfTimeline ? withTime(compiled) : compiled };
    }),
  );
}

/** The axis of time follows a signal that the page sets. */
function withTime(compiled: unknown): unknown {
  const spec = compiled as { readonly scales: readonly object[]; readonly signals?: readonly object[] };
  const scales = spec.scales.map((scale) =>
    'name' in scale && scale.name === 'x'
      ? { ...scale, domainRaw: { signal: 'seconds' }, nice: false }
      : scale,
  );
  return { ...spec, scales, signals: [...(spec.signals ?? []), { name: 'seconds', value: null }] };
}
