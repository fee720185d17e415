/** What a search came to: the winner beside every preset, case by case, on suites that it never saw. */

import { type EvaluationPlan, meansBySetting } from '../../evolve/fitness/index.ts';
import type {
  Chosen,
  GenerationRecord,
  Individual,
  Judged,
  Search,
  SearchState,
} from '../../evolve/search/index.ts';
import { formatCounted, renderTable } from '../output/index.ts';

export interface JudgedPolicy {
  readonly name: string;
  readonly id: string;
  /** Gain over the baseline, mean over the hidden suite. */
  readonly hidden: number;
  /** The same in each setting: a workload with a model of time. */
  readonly settings: Readonly<Record<string, number>>;
  /** Score of each case of the hidden suite. */
  readonly cases: Readonly<Record<string, number>>;
  readonly error?: string;
}

/** Cases of one workload and one model of time, all seeds together. */
export interface Setting {
  readonly setting: string;
  /** Mean score of the winner, and of the best preset, which need not be the same in another setting. */
  readonly winner: number;
  readonly bestPreset: string;
  readonly bestPresetScore: number;
}

export interface EvolveReport {
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

export function reportText(
  { winner, presets, settings, evaluations, generations }: EvolveReport,
  first: number,
): string {
  const head =
    `${formatCounted(generations, 'generations')}, ${formatCounted(evaluations, 'evaluations')}, ` +
    `${formatCounted(first, 'policies')} to begin with.\n` +
    `winner ${winner.id} (${winner.origin}, generation ${winner.generation}): ahead of the best presets by ` +
    `${percent(winner.train)} on train and ${percent(winner.validation)} on validation ` +
    '(three quarters of it the smallest lead in any setting)\n\n';
  return head + comparisonTable(winner, presets) + verdictOf(settings);
}

function verdictOf(settings: readonly Setting[]): string {
  const lines = settings.map(({ setting, winner, bestPreset, bestPresetScore }) => {
    const lead = percent(winner - bestPresetScore);
    return `${setting}: ${percent(winner)}, ${lead} beside the best preset there, ${bestPreset}\n`;
  });
  if (settings.length === 0) return 'No other policy was judged beside it.\n';
  const ahead = settings.filter((each) => each.winner > each.bestPresetScore).length;
  const all = `On the hidden suite it beats every preset in ${ahead} of ${settings.length} settings.\n`;
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
