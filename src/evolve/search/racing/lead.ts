/**
 * What there is to beat, and by how much a candidate does. In each setting, a workload with a model of time,
 * the bar is the best preset there, which need not be the same in another one. A candidate's lead is what it
 * gains more than that. Its score goes by the setting where its lead is smallest, so that no workload pays
 * for another: presets score 0 at most, and what scores well is above each of them everywhere.
 */

import { type Evaluation, FAILED_SCORE, meansBySetting, settingOf } from '../../fitness/index.ts';

/** Score of each case by its id. */
export type CaseScores = Readonly<Record<string, number>>;
export type BySetting = Readonly<Record<string, number>>;

/** Share of the smallest lead in the score; the rest is the mean, which tells equal ones apart. */
const SMALLEST = 0.75;

export interface Standing {
  readonly score: number;
  /** Lead over the best preset in each setting; none where the evaluation failed. */
  readonly leads: BySetting;
  /** How many cases they rest on. */
  readonly cases: number;
}

export function caseScoresOf({ cases = [] }: Evaluation): CaseScores {
  return Object.fromEntries(cases.map(({ id, score }) => [id, score]));
}

/** Mean score of the best preset in each setting, over these cases. */
export function barsOf(presets: readonly CaseScores[], cases: readonly string[]): BySetting {
  const all = presets.map((scores) => meansBySetting(cases.map((id) => ({ id, score: scores[id] }))));
  return Object.fromEntries(
    [...new Set(cases.map(settingOf))].map((setting) => [
      setting,
      Math.max(...all.map((means) => means[setting])),
    ]),
  );
}

export function standingOf({ cases = [], error }: Evaluation, bars: BySetting): Standing {
  if (error !== undefined) return { score: FAILED_SCORE, leads: {}, cases: 0 };
  const means = meansBySetting(cases);
  const leads = Object.fromEntries(Object.keys(means).map((name) => [name, means[name] - bars[name]]));
  const values = Object.values(leads);
  const mean = values.reduce((sum, lead) => sum + lead, 0) / values.length;
  const score = SMALLEST * Math.min(...values) + (1 - SMALLEST) * mean;
  return { score, leads, cases: cases.length };
}

interface Led {
  readonly leads: BySetting;
}

/** For each setting all of them by their leads there, the best first; failed ones have no lead. */
export function leadersOf<Each extends Led>(all: readonly Each[]): Each[][] {
  const ran = all.filter(({ leads }) => Object.keys(leads).length > 0);
  return Object.keys(ran[0]?.leads ?? {}).map((setting) =>
    [...ran].sort((a, b) => b.leads[setting] - a.leads[setting]),
  );
}

/** The `count` that lead most in any setting, each once. */
export function bestOfEach<Each extends Led>(all: readonly Each[], count: number): Each[] {
  const kept = new Set(leadersOf(all).flatMap((ranked) => ranked.slice(0, count)));
  return all.filter((each) => kept.has(each));
}
