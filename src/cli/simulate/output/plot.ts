/** The picture of a simulation: how latencies are distributed, and how full the tiers are over time. */

import type { RequestTable } from '../../../sim/metrics/index.ts';
import type { OccupancySample } from '../../../sim/report/index.ts';
import type { VegaLiteSpec } from '../../output/index.ts';

const WIDTH = 520;
const POINTS = 100;

interface Point {
  readonly what: string;
  readonly ms: number;
  readonly share: number;
}

/** The share of requests that took at most so long, at equal steps of the share. */
function distribution(what: string, valuesUs: Float64Array): Point[] {
  if (valuesUs.length === 0) return [];
  valuesUs.sort();
  return Array.from({ length: POINTS + 1 }, (_, i) => {
    const at = Math.min(valuesUs.length - 1, Math.floor((i / POINTS) * valuesUs.length));
    return { what, ms: Math.max(valuesUs[at], 1) / 1000, share: i / POINTS };
  });
}

function known(table: RequestTable, valueOfRow: (row: number) => number): Float64Array {
  const values: number[] = [];
  for (let row = 0; row < table.size; row++) {
    const value = valueOfRow(row);
    if (value >= 0) values.push(value);
  }
  return Float64Array.from(values);
}

export function simulationChart(
  title: string,
  table: RequestTable,
  samples: readonly OccupancySample[],
  tiers: readonly string[],
): VegaLiteSpec {
  const isComplete = (row: number): boolean => table.e2eUs[row] >= 0;
  const latencies = [
    ...distribution(
      'first token',
      known(table, (row) => table.firstTokenUs[row]),
    ),
    ...distribution(
      'between tokens',
      known(table, (row) => (isComplete(row) ? table.meanGapUs(row) : -1)),
    ),
    ...distribution(
      'whole request',
      known(table, (row) => table.e2eUs[row]),
    ),
  ];
  const occupancy = samples.flatMap(({ timeUs, shares }) =>
    shares.map((share, i) => ({ s: timeUs / 1e6, tier: tiers[i], share })),
  );
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title,
    background: 'white',
    resolve: { scale: { color: 'independent' } },
    vconcat: [
      {
        width: WIDTH,
        height: 180,
        data: { values: latencies },
        mark: { type: 'line' },
        encoding: {
          x: { field: 'ms', type: 'quantitative', scale: { type: 'log' }, title: 'time (ms)' },
          y: { field: 'share', type: 'quantitative', title: 'share of requests', axis: { format: '%' } },
          color: { field: 'what', type: 'nominal', title: null, sort: null },
        },
      },
      {
        width: WIDTH,
        height: 130,
        data: { values: occupancy },
        mark: { type: 'line', interpolate: 'step-after' },
        encoding: {
          x: { field: 's', type: 'quantitative', title: 'time (s)' },
          y: { field: 'share', type: 'quantitative', title: 'tier in use', axis: { format: '%' } },
          color: { field: 'tier', type: 'nominal', title: null, sort: null },
        },
      },
    ],
  };
}
