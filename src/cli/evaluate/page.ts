/** The text that `tierkv evaluate` prints of evaluations. */

import { renderTable } from '../../io/printing/text.ts';
import { bundleSchema, describePolicies, descriptionText } from '../../policy/evolve/bundle/schema.ts';
import {
  type Evaluation,
  type EvaluationError,
  meansBySetting,
} from '../../policy/evolve/fitness/evaluation.ts';
import { metricDescriptions, metricsText } from '../../policy/evolve/fitness/objectives.ts';
import { paretoRanks } from '../../policy/evolve/search/selection.ts';

function signed(value: number): string {
  return `${value >= 0 ? '+' : ''}${value.toFixed(4)}`;
}

function gain(value: number): string {
  return `${value >= 0 ? '+' : ''}${(100 * value).toFixed(1)} %`;
}

/** A row a case, and one over all. */
export function evaluationTable(evaluation: Evaluation, objectives: readonly string[]): string {
  const { cases = [], score, objectives: overall, metrics } = evaluation;
  const columns = ['case', 'score', ...objectives, 'latency', 'TTFT P99', 'SLO met', 'hits', 'rejected'];
  const row = (name: string, value: number, gains: readonly number[], of: typeof metrics): string[] => [
    name,
    signed(value),
    ...gains.map(gain),
    `${of.latency_ms.toFixed(0)} ms`,
    `${of.ttft_p99_ms.toFixed(0)} ms`,
    `${(100 * of.slo_attainment).toFixed(1)} %`,
    `${(100 * of.cache_hit_rate).toFixed(1)} %`,
    `${(100 * of.reject_rate).toFixed(1)} %`,
  ];
  const rows = cases.map((each) => row(each.id, each.score, each.objectives, each.metrics));
  return renderTable(
    columns.map((title, i) => ({ title, align: i === 0 ? ('left' as const) : ('right' as const) })),
    [...rows, row('all', score, overall, metrics)],
  );
}

export interface RankedBundle {
  readonly name: string;
  readonly evaluation: Evaluation;
}

/** Mean gain in each setting, a workload with a model of time; '' where there is one only. */
export function settingsTable(entries: readonly RankedBundle[]): string {
  const ran = entries.filter(({ evaluation }) => evaluation.error === undefined);
  const settings = Object.keys(meansBySetting(ran[0]?.evaluation.cases ?? []));
  if (settings.length < 2) return '';
  ran.sort((a, b) => b.evaluation.score - a.evaluation.score);
  return renderTable(
    ['policy', ...settings].map((title, i) => ({ title, align: i === 0 ? 'left' : 'right' })),
    ran.map(({ name, evaluation: { cases = [] } }) => {
      const means = meansBySetting(cases);
      return [name, ...settings.map((setting) => gain(means[setting]))];
    }),
  );
}

/**
 * Front of each policy: 1 where none is better in all objectives, 2 where only policies of front 1 are, and so on;
 * undefined for one that failed.
 */
export function frontsOf(evaluations: readonly Evaluation[]): (number | undefined)[] {
  const ran = evaluations.filter(({ error }) => error === undefined);
  const ranks = paretoRanks(ran.map(({ objectives }) => objectives));
  return evaluations.map((evaluation) => {
    const at = ran.indexOf(evaluation);
    return at < 0 ? undefined : 1 + ranks[at];
  });
}

/** The fault of each policy that failed, a line each. */
export function failureLines(entries: readonly RankedBundle[]): string {
  return entries
    .flatMap(({ name, evaluation: { error } }) => (error === undefined ? [] : [failureLine(name, error)]))
    .join('');
}

function failureLine(name: string, { kind, message }: EvaluationError): string {
  return `${name} has no score. ${message.startsWith(`${kind}: `) ? message : `${kind}: ${message}`}\n`;
}

/** One line an evaluation, the best first. */
export function rankingTable(entries: readonly RankedBundle[], objectives: readonly string[]): string {
  const fronts = frontsOf(entries.map(({ evaluation }) => evaluation));
  const ranked = entries
    .map((entry, i) => ({ ...entry, front: fronts[i] }))
    .sort((a, b) => b.evaluation.score - a.evaluation.score);
  const columns = ['policy', 'id', 'score', ...objectives, 'worst case', 'front', 'nodes', 'error'];
  return renderTable(
    columns.map((title, i) => ({ title, align: i < 2 ? ('left' as const) : ('right' as const) })),
    ranked.map(({ name, evaluation, front }) => {
      const { error, cases = [], policyId, score, objectives: gains, metrics } = evaluation;
      if (error !== undefined)
        return [name, policyId, '-', ...gains.map(() => '-'), '-', '-', '-', error.kind];
      const worst = Math.min(...cases.map((each) => each.score));
      return [
        name,
        policyId,
        signed(score),
        ...gains.map(gain),
        signed(worst),
        String(front),
        String(metrics.policy_nodes),
        '',
      ];
    }),
  );
}

// Whether a ranking of policies holds when the model of the world changes: the same policies on the same
// workloads with every model of time, or with workloads that are a little different.

/** One version of the world, and the scores of all policies in it; undefined for one that failed. */
export interface World {
  readonly name: string;
  readonly scores: readonly (number | undefined)[];
}

/** Scores closer than this are a tie. */
const TIE = 0.005;

function sign(difference: number): number {
  return Math.abs(difference) < TIE ? 0 : Math.sign(difference);
}

interface PairVerdict {
  readonly better: string;
  readonly worse: string;
  /** Worlds in which it is so, in which they tie, and in which it is the other way round. */
  readonly holds: number;
  readonly ties: number;
  readonly reversed: readonly string[];
  /** Worlds in which both have a score. */
  readonly worlds: number;
}

/** For each pair of policies which is better over all worlds, and where that is not so. */
export function pairVerdicts(names: readonly string[], worlds: readonly World[]): PairVerdict[] {
  const verdicts: PairVerdict[] = [];
  for (let a = 0; a < names.length; a++) {
    for (let b = a + 1; b < names.length; b++) {
      const differences = worlds.flatMap(({ name, scores }) => {
        const [x, y] = [scores[a], scores[b]];
        return x === undefined || y === undefined ? [] : [{ name, difference: x - y }];
      });
      const sum = differences.reduce((total, { difference }) => total + difference, 0);
      const direction = sum >= 0 ? 1 : -1;
      verdicts.push({
        better: names[direction === 1 ? a : b],
        worse: names[direction === 1 ? b : a],
        holds: differences.filter(({ difference }) => sign(difference) === direction).length,
        ties: differences.filter(({ difference }) => sign(difference) === 0).length,
        reversed: differences
          .filter(({ difference }) => sign(difference) === -direction)
          .map(({ name }) => name),
        worlds: differences.length,
      });
    }
  }
  return verdicts;
}

/** Where they tie in more worlds than one is better, the order says nothing. */
function verdictOf(holds: number, ties: number, reversed: number): string {
  if (holds === 0 || (reversed === 0 && ties > holds)) return 'a tie';
  return reversed === 0 ? 'robust' : 'NOT robust';
}

export function sensitivityText(names: readonly string[], worlds: readonly World[]): string {
  const table = renderTable(
    ['world', ...names].map((title, i) => ({
      title,
      align: i === 0 ? ('left' as const) : ('right' as const),
    })),
    worlds.map(({ name, scores }) => [
      name,
      ...scores.map((score) => (score === undefined ? 'failed' : signed(score))),
    ]),
  );
  const lines = pairVerdicts(names, worlds).map(({ better, worse, holds, ties, reversed, worlds: both }) => {
    if (both === 0) return `${better} and ${worse}: no verdict, since one of them has no score anywhere`;
    const where = reversed.length === 0 ? '' : `; the other way round in ${reversed.join(', ')}`;
    const tied = ties === 0 ? '' : `, ${ties} ties within ${TIE}`;
    const verdict = verdictOf(holds, ties, reversed.length);
    return `${better} over ${worse}: ${verdict}, holds in ${holds} of ${both} worlds${tied}${where}`;
  });
  return `${table}${lines.join('\n')}\n`;
}

//  `tierkv evaluate describe`.

export function describe(schema: boolean, json: boolean): string {
  if (schema) return `${JSON.stringify(bundleSchema(), null, 2)}\n`;
  if (!json) return `${descriptionText()}\n${metricsText()}`;
  return `${JSON.stringify({ ...describePolicies(), metrics: metricDescriptions }, null, 2)}\n`;
}
