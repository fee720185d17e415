/** What `tierkv evaluate` prints of evaluations. */

import { type Evaluation, type EvaluationError, meansBySetting } from '../../evolve/fitness/index.ts';
import { paretoRanks } from '../../evolve/search/index.ts';
import { renderTable } from '../output/index.ts';

export function signed(value: number): string {
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

export interface Ranked {
  readonly name: string;
  readonly evaluation: Evaluation;
}

/** Mean gain in each setting, a workload with a model of time; '' where there is one only. */
export function settingsTable(entries: readonly Ranked[]): string {
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
 * By policy: 1 for those that no other one passes in all objectives, 2 for those that only they pass, and so
 * on; undefined for one that failed.
 */
export function frontsOf(evaluations: readonly Evaluation[]): (number | undefined)[] {
  const ran = evaluations.filter(({ error }) => error === undefined);
  const ranks = paretoRanks(ran.map(({ objectives }) => objectives));
  return evaluations.map((evaluation) => {
    const at = ran.indexOf(evaluation);
    return at < 0 ? undefined : 1 + ranks[at];
  });
}

/** What is wrong with each policy that failed, a line each. */
export function failureLines(entries: readonly Ranked[]): string {
  return entries
    .flatMap(({ name, evaluation: { error } }) => (error === undefined ? [] : [failureLine(name, error)]))
    .join('');
}

function failureLine(name: string, { kind, message }: EvaluationError): string {
  return `${name} has no score. ${message.startsWith(`${kind}: `) ? message : `${kind}: ${message}`}\n`;
}

/** One line an evaluation, the best first. */
export function rankingTable(entries: readonly Ranked[], objectives: readonly string[]): string {
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
