/** A search as a report: is there a policy that beats every preset, where, and how was it found? */

import { formatCounted } from '../../io/printing/text.ts';
import { type Report, type ReportSection, written } from './model.ts';
import { originOf, settingIn } from './origin.ts';

/** A policy on the suite that the search never saw. */
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

/** The result of a search. */
interface SearchOutcome {
  readonly generations: number;
  readonly evaluations: number;
  readonly winner: JudgedPolicy & {
    readonly train: number;
    readonly validation: number;
    readonly origin: string;
    readonly generation: number;
  };
  readonly presets: readonly JudgedPolicy[];
  readonly settings: readonly {
    readonly setting: string;
    readonly winner: number;
    readonly bestPreset: string;
    readonly bestPresetScore: number;
  }[];
  readonly history: readonly { readonly generation: number; readonly best: number }[];
}

interface SearchedPolicies {
  readonly outcome: SearchOutcome;
  /** Each policy that ran: the generation that made it, and its score. */
  readonly individuals: readonly {
    readonly generation: number;
    readonly score: number;
    readonly origin: string;
  }[];
  readonly command: string;
  /** Where the winner lies. */
  readonly folder: string;
  /** Work that did not fit into the time of the search, as a sentence. */
  readonly leftOut?: string;
}

/** Origin of what a search began with: presets, and policies that it was given. */
const FIRST = 'preset';

/** Lowest score on the axis; lower ones are drawn at this end. */
const LOWEST = -0.3;

export function searchReport({ outcome, individuals, command, folder, leftOut }: SearchedPolicies): Report {
  const { winner, presets, settings, generations, evaluations, history } = outcome;
  const ran = presets.filter(({ error }) => error === undefined);
  const best = ran.reduce<JudgedPolicy | undefined>(
    (a, b) => (a === undefined || b.hidden > a.hidden ? b : a),
    undefined,
  );
  const ahead = settings.filter((each) => each.winner > each.bestPresetScore).length;
  const isNew = winner.origin !== FIRST;
  const beatsAll = isNew && settings.length > 0 && ahead === settings.length;
  const lead = best === undefined ? null : winner.hidden - best.hidden;
  return {
    title: 'A search for a better policy',
    question: 'Is there a policy that beats every preset?',
    answer: `${generations === 0 ? 'No generation was run, so this is not a search. ' : ''}${answerOf(outcome, best, leftOut === undefined, ran.length)}`,
    verdict:
      winner.error !== undefined
        ? 'no'
        : best === undefined || generations === 0
          ? 'open'
          : beatsAll
            ? 'yes'
            : isNew && lead !== null && lead > 0
              ? 'open'
              : 'no',
    figures: [
      {
        name: 'gain over the baseline, never seen',
        value: winner.hidden,
        unit: 'share',
        ...spreadOf(winner),
      },
      {
        name: 'ahead of the best preset',
        value: lead,
        unit: 'share',
        ...(best === undefined ? {} : { note: best.name }),
      },
      { name: 'lead in the search', value: winner.train, unit: 'share', note: 'train' },
      { name: 'lead where it was chosen', value: winner.validation, unit: 'share', note: 'validation' },
      {
        name: 'evaluations',
        value: evaluations,
        unit: 'count',
        note: formatCounted(generations, 'generations'),
      },
    ],
    sections: [
      bars(winner, ran, leftOut === undefined),
      ...settingsSection(outcome),
      ...(history.length < 2 ? [] : [progress(history)]),
      {
        kind: 'points',
        title: 'All policies that were tried',
        x: { title: 'generation', unit: 'count' },
        y: { title: 'lead', unit: 'share' },
        points: individuals.map(({ generation, score, origin }) => ({
          x: generation,
          y: Math.max(LOWEST, score),
          name: origin,
          group: origin,
        })),
      },
    ],
    next: [
      `Try the winner on the suite hidden, beside the presets: tierkv evaluate ${folder}/best.json.`,
      ...(beatsAll ? ['Deploy it before real servers with tierkv gateway, as a shadow first.'] : []),
      ...settings
        .filter((each) => each.winner <= each.bestPresetScore)
        .slice(0, 3)
        .map(({ setting, bestPreset }) => `In ${setting} keep ${bestPreset}, or search on such workloads.`),
      ...(generations < 10
        ? [
            `The search was short: ${settingIn(command, 'resume')} with more ${settingIn(command, 'generations')} goes on from here.`,
          ]
        : []),
    ],
    limits: [
      ...(leftOut === undefined ? [] : [`${leftOut}. More time judges the others too.`]),
      'Scores come from the simulator. The suite that judges was seen by neither the search nor the choice.',
      `Scores below ${written(LOWEST, 'share')} are drawn there.`,
    ],
    origin: originOf(command, { winner: winner.id, 'made by': winner.origin, folder }),
  };
}

/** @param best of the presets that were judged beside the winner @param areAll whether all were @param count of them */
function answerOf(
  { winner, settings }: SearchOutcome,
  best: JudgedPolicy | undefined,
  areAll: boolean,
  count: number,
): string {
  const unseen = 'on workloads that the search never saw';
  if (winner.error !== undefined) return `No: the winner failed ${unseen}. ${winner.error}`;
  if (best === undefined) {
    const name = winner.name === winner.id ? '' : `, ${winner.name},`;
    return `The winner${name} gains ${written(winner.hidden, 'share')} over the baseline; no preset was judged beside it.`;
  }
  const lead = winner.hidden - best.hidden;
  if (lead <= 0) return `No: ${unseen}, ${best.name} stays ${written(-lead, 'share')} ahead of the winner.`;
  const isNew = winner.origin !== FIRST;
  const besides = areAll
    ? `the best ${isNew ? '' : 'other '}preset`
    : `the best of the presets judged (${count})`;
  const ahead = `${written(lead, 'share')} ahead of ${besides}, ${best.name}, ${unseen}`;
  if (!isNew) {
    return `No: the winner is itself a policy that the search began with, ${winner.name}. It is ${ahead}.`;
  }
  const first = settings.filter((each) => each.winner > each.bestPresetScore).length;
  const word = first > 0 && first === settings.length ? 'Yes' : 'In part';
  return `${word}: the winner is ${ahead}, and first in ${first} of ${settings.length} settings.`;
}

function spreadOf({ cases }: JudgedPolicy): { spread?: { low: number; high: number; over: string } } {
  const scores = Object.values(cases);
  if (scores.length < 2) return {};
  return { spread: { low: Math.min(...scores), high: Math.max(...scores), over: `${scores.length} cases` } };
}

function bars(winner: JudgedPolicy, presets: readonly JudgedPolicy[], areAll: boolean): ReportSection {
  return {
    kind: 'bars',
    title: `The winner beside ${areAll ? 'every preset' : 'the presets that were judged'}, on workloads that were never seen`,
    note: 'Mean gain over the baseline, and the range from the worst to the best case.',
    unit: 'share',
    bars: [{ ...winner, name: 'the winner' }, ...presets].map((policy, i) => {
      const scores = Object.values(policy.cases);
      return {
        name: policy.name,
        value: policy.hidden,
        low: Math.min(policy.hidden, ...scores),
        high: Math.max(policy.hidden, ...scores),
        isChosen: i === 0,
      };
    }),
  };
}

function progress(history: SearchOutcome['history']): ReportSection {
  return {
    kind: 'lines',
    title: 'The best policy, generation by generation',
    note: 'Lead over the best presets on the suite that the search sees.',
    x: { title: 'generation', unit: 'count' },
    y: { title: 'lead', unit: 'share' },
    series: [{ name: 'the best so far', points: history.map(({ generation, best }) => [generation, best]) }],
  };
}

function settingsSection({ settings }: SearchOutcome): ReportSection[] {
  if (settings.length === 0) return [];
  return [
    {
      kind: 'table',
      title: 'Setting by setting',
      columns: [
        { title: 'setting' },
        { title: 'winner', unit: 'share' },
        { title: 'best preset there' },
        { title: 'its gain', unit: 'share' },
        { title: 'lead', unit: 'share' },
      ],
      rows: settings.map(({ setting, winner, bestPreset, bestPresetScore }) => [
        setting,
        winner,
        bestPreset,
        bestPresetScore,
        winner - bestPresetScore,
      ]),
    },
  ];
}
