/** What a search came to: the winner beside every preset, case by case, on suites that it never saw. */

import type { EvaluationPlan } from '../../evolve/fitness/index.ts';
import type {
  Chosen,
  GenerationRecord,
  Individual,
  Judged,
  Search,
  SearchState,
} from '../../evolve/search/index.ts';
import { renderTable } from '../output/index.ts';

export interface JudgedPolicy {
  readonly name: string;
  readonly id: string;
  readonly hidden: number;
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
  readonly winner: JudgedPolicy & {
    readonly train: number;
    readonly validation: number;
    readonly origin: string;
    readonly generation: number;
  };
  readonly finalists: readonly { id: string; train: number; validation: number }[];
  readonly presets: readonly JudgedPolicy[];
  readonly settings: readonly Setting[];
  readonly suites: Readonly<Record<string, readonly string[]>>;
  readonly history: readonly GenerationRecord[];
}

function judgedPolicy({ individual, hidden }: Judged): JudgedPolicy {
  return {
    name: individual.bundle.name ?? individual.id,
    id: individual.id,
    hidden: hidden.score,
    cases: Object.fromEntries((hidden.cases ?? []).map(({ id, score }) => [id, score])),
    ...(hidden.error === undefined ? {} : { error: hidden.error.message }),
  };
}

/** `shared-prefixes/roofline/7` without its seed. */
function settingOf(caseId: string): string {
  return caseId.split('/').slice(0, -1).join('/');
}

function meanIn({ cases }: JudgedPolicy, setting: string): number {
  const scores = Object.entries(cases).flatMap(([id, score]) => (settingOf(id) === setting ? [score] : []));
  return scores.reduce((sum, score) => sum + score, 0) / scores.length;
}

function settingsOf(winner: JudgedPolicy, presets: readonly JudgedPolicy[]): Setting[] {
  const names = [...new Set(Object.keys(winner.cases).map(settingOf))];
  const ran = presets.filter(({ error }) => error === undefined);
  return names.map((setting) => {
    let best = ran[0];
    for (const preset of ran) if (meanIn(preset, setting) > meanIn(best, setting)) best = preset;
    return {
      setting,
      winner: meanIn(winner, setting),
      bestPreset: best.name,
      bestPresetScore: meanIn(best, setting),
    };
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
    `${generations} generations, ${evaluations} evaluations, ${first} policies to begin with.\n` +
    `winner ${winner.id} (${winner.origin}, generation ${winner.generation}): ` +
    `train ${percent(winner.train)}, validation ${percent(winner.validation)}, hidden ` +
    `${percent(winner.hidden)} ` +
    'against the baseline\n\n';
  const better = settings.filter((each) => each.winner > each.bestPresetScore).length;
  const best = presets[0];
  const verdict =
    best === undefined
      ? ''
      : `On the hidden suite it is ${winner.hidden > best.hidden ? 'better' : 'no better'} than ` +
        `the best preset, ` +
        `${best.name} at ${percent(best.hidden)}; in ${better} of ${settings.length} settings it ` +
        `is better than ` +
        'whatever preset is best there.\n';
  const table = renderTable(
    [
      { title: 'hidden suite' },
      { title: 'winner', align: 'right' },
      { title: 'best preset there' },
      { title: 'at', align: 'right' },
    ],
    settings.map(({ setting, winner: own, bestPreset, bestPresetScore }) => [
      setting,
      percent(own),
      bestPreset,
      percent(bestPresetScore),
    ]),
  );
  const ranking = renderTable(
    [{ title: 'preset' }, { title: 'hidden', align: 'right' }],
    presets.map(({ name, hidden, error }) => [name, error === undefined ? percent(hidden) : 'failed']),
  );
  return head + table + verdict + ranking;
}

/** One line for each bundle that was evaluated. */
export function lineageText({ individuals }: SearchState): string {
  const line = ({ id, generation, origin, parents, score, objectives, error, bundle }: Individual): string =>
    JSON.stringify({
      id,
      generation,
      origin,
      parents,
      score,
      objectives,
      ...(bundle.name === undefined ? {} : { name: bundle.name }),
      ...(bundle.mutations === undefined ? {} : { mutations: bundle.mutations }),
      ...(error === undefined ? {} : { error: error.kind }),
    });
  return individuals.map((individual) => `${line(individual)}\n`).join('');
}
