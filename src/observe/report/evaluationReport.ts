/** Evaluated policies as a report: which one is best, in which cases, and how sure is that? */

import { type Evaluation, meansBySetting } from '../../policy/evolve/fitness/evaluation.ts';
import { type Figure, type Report, type ReportSection, written } from './model.ts';
import { originOf, settingIn } from './origin.ts';

interface JudgedPolicies {
  readonly policies: readonly { readonly name: string; readonly evaluation: Evaluation }[];
  readonly suite: string;
  readonly objectiveNames: readonly string[];
  /** The evaluator's summary of the first policy's worst case. */
  readonly summary: string | undefined;
  readonly command: string;
}

/** Gains closer than this are a tie. */
const TIE = 0.005;

export function evaluationReport({
  policies,
  suite,
  objectiveNames,
  summary,
  command,
}: JudgedPolicies): Report {
  const ran = policies.filter(({ evaluation }) => evaluation.error === undefined);
  ran.sort((a, b) => b.evaluation.score - a.evaluation.score);
  const failed = policies.filter(({ evaluation }) => evaluation.error !== undefined);
  const [best, second] = ran;
  const lead =
    best === undefined || second === undefined ? Infinity : best.evaluation.score - second.evaluation.score;
  const wins = best === undefined ? 0 : casesAbove(best.evaluation);
  const count = best?.evaluation.cases?.length ?? 0;
  const answer =
    best === undefined
      ? 'No policy has a score: each of them failed.'
      : `${best.name} scores ${gain(best.evaluation.score)} over the baseline on ${suite}, ahead of it in ${wins} of ${count} cases` +
        `${second === undefined ? '.' : lead < TIE ? `; ${second.name} is as good.` : `; ${second.name} follows with ${gain(second.evaluation.score)}.`}`;
  return {
    title: policies.length === 1 ? `The policy ${policies[0].name}` : `${policies.length} policies compared`,
    question:
      policies.length === 1
        ? `Is ${policies[0].name} better than the baseline?`
        : 'Which policy is the best for these workloads?',
    answer,
    verdict:
      best === undefined
        ? 'no'
        : best.evaluation.score > TIE
          ? 'yes'
          : best.evaluation.score < -TIE
            ? 'no'
            : 'open',
    figures: best === undefined ? [] : figuresOf(best.evaluation),
    sections: [
      ...(ran.length > 1 ? [ranking(ran, objectiveNames)] : []),
      ...(best === undefined ? [] : [caseBars(ran), caseTable(best.name, best.evaluation, objectiveNames)]),
      ...settingsSection(ran),
      ...(summary === undefined ? [] : summarySections(summary)),
      ...(failed.length === 0 ? [] : [failures(failed)]),
    ],
    next: advice(ran, lead, command),
    limits: [
      `Scores are gains over the baseline on the suite ${suite}, in the simulator: policies are compared, times of a real server are not predicted.`,
      'The spread of a bar is over the cases: workloads, models of time and seeds.',
    ],
    origin: originOf(command, { suite, cases: String(count), objectives: objectiveNames.join(', ') }),
  };
}

function gain(score: number): string {
  return `${score >= 0 ? '+' : ''}${written(score, 'share')}`;
}

function casesAbove({ cases = [] }: Evaluation): number {
  return cases.filter(({ score }) => score > 0).length;
}

function figuresOf({ score, cases = [], metrics }: Evaluation): Figure[] {
  const scores = cases.map((each) => each.score);
  const known: readonly (readonly [name: string, metric: string, unit: Figure['unit']])[] = [
    ['mean latency', 'latency_ms', 'ms'],
    ['first token, p99', 'ttft_p99_ms', 'ms'],
    ['targets met', 'slo_attainment', 'share'],
    ['blocks found in a cache', 'cache_hit_rate', 'share'],
    ['rejected', 'reject_rate', 'share'],
  ];
  return [
    {
      name: 'gain over the baseline',
      value: score,
      unit: 'share',
      ...(scores.length < 2
        ? {}
        : {
            spread: { low: Math.min(...scores), high: Math.max(...scores), over: `${scores.length} cases` },
          }),
    },
    ...known
      .filter(([, metric]) => metrics[metric] !== undefined)
      .map(([name, metric, unit]): Figure => {
        const all = cases.map((each) => each.metrics[metric]).filter((value) => value !== undefined);
        const spread = { low: Math.min(...all), high: Math.max(...all), over: `${all.length} cases` };
        return { name, value: metrics[metric], unit, ...(all.length < 2 ? {} : { spread }) };
      }),
  ];
}

type NamedEvaluation = JudgedPolicies['policies'][number];

function ranking(ran: readonly NamedEvaluation[], objectives: readonly string[]): ReportSection {
  return {
    kind: 'table',
    title: 'Ranking',
    columns: [
      { title: 'policy' },
      { title: 'gain', unit: 'share' },
      ...objectives.map((title) => ({ title, unit: 'share' as const })),
      { title: 'worst case', unit: 'share' },
      { title: 'ahead in', unit: 'share' },
      { title: 'id' },
    ],
    rows: ran.map(({ name, evaluation }) => {
      const { cases = [], score, objectives: gains, policyId } = evaluation;
      return [
        name,
        score,
        ...objectives.map((_, i) => gains[i] ?? null),
        Math.min(...cases.map((each) => each.score)),
        casesAbove(evaluation) / Math.max(1, cases.length),
        policyId,
      ];
    }),
    chosen: 0,
  };
}

function caseBars(ran: readonly NamedEvaluation[]): ReportSection {
  return {
    kind: 'bars',
    title: 'Gain over the baseline',
    note: 'The mean over the cases, and the range from the worst to the best case.',
    unit: 'share',
    bars: ran.slice(0, 20).map(({ name, evaluation: { score, cases = [] } }, i) => ({
      name,
      value: score,
      low: Math.min(score, ...cases.map((each) => each.score)),
      high: Math.max(score, ...cases.map((each) => each.score)),
      isChosen: i === 0,
    })),
  };
}

function caseTable(name: string, { cases = [] }: Evaluation, objectives: readonly string[]): ReportSection {
  return {
    kind: 'table',
    title: `${name}, case by case`,
    columns: [
      { title: 'case' },
      { title: 'gain', unit: 'share' },
      ...objectives.map((title) => ({ title, unit: 'share' as const })),
      { title: 'latency', unit: 'ms' },
      { title: 'first token, p99', unit: 'ms' },
      { title: 'targets met', unit: 'share' },
      { title: 'found', unit: 'share' },
    ],
    rows: cases.map(({ id, score, objectives: gains, metrics }) => [
      id,
      score,
      ...objectives.map((_, i) => gains[i] ?? null),
      metrics.latency_ms ?? null,
      metrics.ttft_p99_ms ?? null,
      metrics.slo_attainment ?? null,
      metrics.cache_hit_rate ?? null,
    ]),
  };
}

function settingsSection(ran: readonly NamedEvaluation[]): ReportSection[] {
  const settings = Object.keys(meansBySetting(ran[0]?.evaluation.cases ?? []));
  if (settings.length < 2 || ran.length < 2) return [];
  return [
    {
      kind: 'bars',
      title: 'Setting by setting',
      note: 'Mean gain in each setting: a workload with a model of time.',
      unit: 'share',
      bars: ran.slice(0, 5).flatMap(({ name, evaluation: { cases = [] } }) => {
        const means = meansBySetting(cases);
        return settings.map((setting) => ({ name: setting, group: name, value: means[setting] }));
      }),
    },
  ];
}

/** Sections of the evaluator's summary of the worst case: decisions, anomalies, regret. */
function summarySections(summary: string): ReportSection[] {
  const parts: { title: string; paragraphs: string[] }[] = [];
  for (const line of summary.split('\n')) {
    if (line.startsWith('#')) parts.push({ title: line.replace(/^#+\s*/, ''), paragraphs: [] });
    else if (line.trim() !== '') {
      if (parts.length === 0) parts.push({ title: 'What went wrong and why', paragraphs: [] });
      parts.at(-1)?.paragraphs.push(line.trim());
    }
  }
  return parts.map(({ title, paragraphs }) => ({ kind: 'text', title: `Worst case: ${title}`, paragraphs }));
}

function failures(failed: readonly NamedEvaluation[]): ReportSection {
  return {
    kind: 'table',
    title: 'Policies without a score',
    columns: [{ title: 'policy' }, { title: 'kind' }, { title: 'message' }],
    rows: failed.map(({ name, evaluation: { error } }) => [name, error?.kind ?? '', error?.message ?? '']),
  };
}

function advice(ran: readonly NamedEvaluation[], lead: number, command: string): string[] {
  const [best] = ran;
  if (best === undefined) return ['Mend what the table of failures names, and evaluate again.'];
  const { cases = [], score } = best.evaluation;
  const worst = cases.reduce((a, b) => (b.score < a.score ? b : a), cases[0]);
  return [
    ...(lead < TIE
      ? [
          `The first two are within half a percent: more seeds (${settingIn(command, 'seeds')}) tell them apart.`,
        ]
      : []),
    ...(worst !== undefined && worst.score < 0
      ? [`Look at ${worst.id}: there it is ${written(-worst.score, 'share')} behind the baseline.`]
      : []),
    ...(score > TIE
      ? [
          `Check the ranking in other worlds (${settingIn(command, 'latency')} all, ${settingIn(command, 'workloads')} perturbed) before you deploy it.`,
        ]
      : ['It gains nothing that counts: search for a better one with tierkv evolve.']),
  ];
}
