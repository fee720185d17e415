/** Pictures of a search: fitness over time, the archive, the Pareto front. */

import type { SearchState } from '../../evolve/search/index.ts';
import type { VegaLiteSpec } from '../output/index.ts';

const schema = 'https://vega.github.io/schema/vega-lite/v6.json';
/** What scores far below the presets is drawn at the lower end. */
const LOWEST = -0.3;

/** Each bundle that ran by the generation that made it, and the best so far. */
export function fitnessChart({ individuals, history }: SearchState): VegaLiteSpec {
  const points = individuals
    .filter(({ error }) => error === undefined)
    .map(({ generation, score, origin }) => ({ generation, score: Math.max(LOWEST, score), origin }));
  const line = history.map(({ generation, best }) => ({ generation, score: best }));
  return {
    $schema: schema,
    title: 'Score on the train suite',
    background: 'white',
    width: 560,
    height: 320,
    layer: [
      {
        data: { values: points },
        mark: { type: 'point', opacity: 0.5, size: 18 },
        encoding: {
          x: { field: 'generation', type: 'quantitative', title: 'generation' },
          y: { field: 'score', type: 'quantitative', title: 'lead over the best preset' },
          color: { field: 'origin', type: 'nominal', title: 'made by' },
        },
      },
      {
        data: { values: line },
        mark: { type: 'line', interpolate: 'step-after', color: 'black' },
        encoding: {
          x: { field: 'generation', type: 'quantitative' },
          y: { field: 'score', type: 'quantitative' },
        },
      },
    ],
  };
}

/** The best score of each cell over all islands, by the first two axes. */
export function archiveChart({ archive }: SearchState): VegaLiteSpec {
  const [across, up] = archive.axes;
  const best = new Map<string, { x: number; y: number; score: number }>();
  for (const grid of archive.islands) {
    for (const [cell, { score }] of Object.entries(grid)) {
      const [i, j = 0] = cell.split('/').map(Number);
      const key = `${i}/${j}`;
      if ((best.get(key)?.score ?? -Infinity) < score) best.set(key, { x: i, y: j, score });
    }
  }
  const label = (axis: typeof across | undefined, bin: number): number =>
    axis === undefined ? 0 : axis.min + ((axis.max - axis.min) * bin) / axis.bins;
  const values = [...best.values()].map(({ x, y, score }) => ({
    x: Number(label(across, x).toPrecision(3)),
    y: Number(label(up, y).toPrecision(3)),
    score: Math.max(LOWEST, score),
  }));
  return {
    $schema: schema,
    title: 'Best policy of each cell of the archive',
    background: 'white',
    width: 420,
    height: 320,
    data: { values },
    mark: { type: 'rect' },
    encoding: {
      x: { field: 'x', type: 'ordinal', title: `${across?.name ?? ''} from` },
      y: { field: 'y', type: 'ordinal', sort: 'descending', title: `${up?.name ?? ''} from` },
      color: { field: 'score', type: 'quantitative', title: 'lead', scale: { scheme: 'viridis' } },
    },
  };
}

/** All bundles in the plane of the first two objectives; the population that NSGA-II keeps stands out. */
export function frontChart({ individuals, front, objectiveNames }: SearchState): VegaLiteSpec {
  const kept = new Set(front);
  const values = individuals
    .filter(({ error }) => error === undefined)
    .map(({ id, objectives, origin }) => ({
      x: Math.max(LOWEST, objectives[0] ?? 0),
      y: Math.max(LOWEST, objectives[1] ?? 0),
      kept: kept.has(id) ? 'Pareto population' : origin === 'preset' ? 'preset' : 'others',
    }));
  return {
    $schema: schema,
    title: 'Objectives, as gains over the baseline',
    background: 'white',
    width: 420,
    height: 320,
    data: { values },
    mark: { type: 'point', filled: true, opacity: 0.7 },
    encoding: {
      x: { field: 'x', type: 'quantitative', title: objectiveNames[0] ?? '' },
      y: { field: 'y', type: 'quantitative', title: objectiveNames[1] ?? '' },
      color: { field: 'kept', type: 'nominal', title: null },
    },
  };
}
