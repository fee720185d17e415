/** Result of a search: the winner beside every preset, case by case, on suites that it never saw. */

import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import { formatCounted, renderTable } from '../../io/printing/text.ts';
import type { JudgedPolicy } from '../../observe/report/searchReport.ts';
import { type EvaluationPlan, meansBySetting } from '../../policy/evolve/fitness/evaluation.ts';
import type { Chosen, GenerationRecord, Judged, SearchState } from '../../policy/evolve/search/breeding.ts';
import type { Individual } from '../../policy/evolve/search/individual.ts';
import type { Search } from '../../policy/evolve/search/search.ts';

/** Cases of one workload and one model of time, all seeds together. */
interface Setting {
  readonly setting: string;
  /** Mean score of the winner, and of the best preset, which need not be the same in another setting. */
  readonly winner: number;
  readonly bestPreset: string;
  readonly bestPresetScore: number;
}

interface EvolveReport {
  readonly generations: number;
  readonly evaluations: number;
  /** `train` and `validation` are scores of the search: leads over the best presets there. */
  readonly winner: JudgedPolicy & {
    readonly train: number;
    readonly validation: number;
    readonly origin: string;
    readonly generation: number;
  };
  readonly finalists: readonly {
    readonly id: string;
    readonly train: number;
    readonly validation: number;
    readonly leads: Readonly<Record<string, number>>;
  }[];
  readonly presets: readonly JudgedPolicy[];
  readonly settings: readonly Setting[];
  readonly suites: Readonly<Record<string, readonly string[]>>;
  readonly history: readonly GenerationRecord[];
}

function judgedPolicy({ individual, hidden }: Judged): JudgedPolicy {
  const { cases = [], score, error } = hidden;
  return {
    name: individual.bundle.name ?? individual.id,
    id: individual.id,
    hidden: score,
    settings: meansBySetting(cases),
    cases: Object.fromEntries(cases.map((each) => [each.id, each.score])),
    ...(error === undefined ? {} : { error: error.message }),
  };
}

/** None where no preset was judged beside it. */
function settingsOf(winner: JudgedPolicy, presets: readonly JudgedPolicy[]): Setting[] {
  const ran = presets.filter(({ error }) => error === undefined);
  if (ran.length === 0) return [];
  return Object.entries(winner.settings).map(([setting, score]) => {
    const best = ran.reduce((a, b) => (b.settings[setting] > a.settings[setting] ? b : a));
    return { setting, winner: score, bestPreset: best.name, bestPresetScore: best.settings[setting] };
  });
}

export function reportOf(
  search: Search,
  chosen: Chosen,
  finalists: readonly Chosen[],
  judged: readonly Judged[],
  { suites }: EvaluationPlan,
): EvolveReport {
  const [first, ...others] = judged.map(judgedPolicy);
  const { individual, train, validation } = chosen;
  const { generation, evaluations, history } = search.state;
  return {
    generations: generation,
    evaluations,
    winner: { ...first, train, validation, origin: individual.origin, generation: individual.generation },
    finalists: finalists.map((each) => ({
      id: each.individual.id,
      train: each.train,
      validation: each.validation,
      leads: each.leads,
    })),
    presets: others.sort((a, b) => b.hidden - a.hidden),
    settings: settingsOf(first, others),
    suites: Object.fromEntries(
      Object.entries(suites).map(([name, cases]) => [name, cases.map(({ id }) => id)]),
    ),
    history,
  };
}

function percent(gain: number): string {
  return `${gain >= 0 ? '+' : ''}${(100 * gain).toFixed(2)} %`;
}

/** A score of the search in words. */
function besideBest(score: number): string {
  const share = `${Math.abs(100 * score).toFixed(2)} %`;
  return score < 0 ? `${share} behind the best preset` : `${share} ahead of the best preset`;
}

export function reportText(
  { winner, presets, settings, evaluations, generations }: EvolveReport,
  first: number,
): string {
  const counts =
    `${formatCounted(generations, 'generations')}, ${formatCounted(evaluations, 'evaluations')}, ` +
    `${formatCounted(first, 'policies')} to begin with.\n`;
  const name = winner.name === winner.id ? '' : `${winner.name}, `;
  const head =
    `${generations === 0 ? 'No generation was run: this is a comparison of the first policies, not a search.\n' : ''}${counts}` +
    `winner ${winner.id} (${name}${winner.origin}, generation ${winner.generation}): ${besideBest(winner.train)} on train, ` +
    `${besideBest(winner.validation)} on validation. Score: 3/4 of the lead in the worst setting + 1/4 of the mean lead.\n\n`;
  return head + comparisonTable(winner, presets) + verdictOf(winner, settings);
}

function verdictOf({ name, origin, error }: EvolveReport['winner'], settings: readonly Setting[]): string {
  if (error !== undefined) return `The winner failed on the hidden suite: ${error}\n`;
  const lines = settings.map(({ setting, winner, bestPreset, bestPresetScore }) => {
    const lead = percent(winner - bestPresetScore);
    return `${setting}: ${percent(winner)}, ${lead} beside the best preset there, ${bestPreset}\n`;
  });
  if (settings.length === 0) return 'No other policy was judged beside it.\n';
  const ahead = settings.filter((each) => each.winner > each.bestPresetScore).length;
  const place = `in ${ahead} of ${settings.length} settings.\n`;
  const all =
    origin === 'preset'
      ? `The winner is itself a policy that the search began with, ${name}. On the hidden suite it beats every other one ${place}`
      : `On the hidden suite it beats every preset ${place}`;
  return lines.join('') + all;
}

/** Gains over the baseline on the hidden suite: a row a policy, a column a setting. */
function comparisonTable(winner: JudgedPolicy, presets: readonly JudgedPolicy[]): string {
  const settings = Object.keys(winner.settings);
  const row = (name: string, { hidden, settings: means, error }: JudgedPolicy): string[] =>
    error === undefined
      ? [name, percent(hidden), ...settings.map((setting) => percent(means[setting]))]
      : [name, 'failed', ...settings.map(() => '-')];
  const titles = ['hidden suite', 'all', ...settings];
  return renderTable(
    titles.map((title, i) => ({ title, align: i === 0 ? ('left' as const) : ('right' as const) })),
    [row('the winner', winner), ...presets.map((preset) => row(preset.name, preset))],
  );
}

/** The same as CSV, with full figures. */
export function comparisonCsv({ winner, presets }: EvolveReport): string {
  const settings = Object.keys(winner.settings);
  const row = (name: string, { hidden, settings: means }: JudgedPolicy): string =>
    [name, hidden, ...settings.map((setting) => means[setting] ?? '')].join(',');
  const rows = [row('winner', winner), ...presets.map((preset) => row(preset.name, preset))];
  return `${['policy', 'all', ...settings].join(',')}\n${rows.join('\n')}\n`;
}

/** One line for each bundle that was evaluated. */
export function lineageText({ individuals }: SearchState): string {
  const line = ({
    id,
    generation,
    origin,
    parents,
    score,
    gain,
    leads,
    cases,
    objectives,
    error,
    bundle,
  }: Individual): string =>
    JSON.stringify({
      id,
      generation,
      origin,
      parents,
      score,
      gain,
      leads,
      cases,
      objectives,
      ...(bundle.name === undefined ? {} : { name: bundle.name }),
      ...(bundle.mutations === undefined ? {} : { mutations: bundle.mutations }),
      ...(error === undefined ? {} : { error: error.kind }),
    });
  return individuals.map((individual) => `${line(individual)}\n`).join('');
}

//  Pictures of a search: fitness over time, the archive, the Pareto front.

const schema = 'https://vega.github.io/schema/vega-lite/v6.json';
/** Scores far below the presets are drawn at the lower end. */
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

/** All bundles in the plane of the first two objectives; bundles that no other one dominates stand out. */
export function frontChart({ individuals, front, objectiveNames }: SearchState): VegaLiteSpec {
  const kept = new Set(front);
  const values = individuals
    .filter(({ error }) => error === undefined)
    .map(({ id, objectives, origin }) => ({
      x: Math.max(LOWEST, objectives[0] ?? 0),
      y: Math.max(LOWEST, objectives[1] ?? 0),
      kept: kept.has(id) ? 'Pareto front' : origin === 'preset' ? 'preset' : 'others',
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
