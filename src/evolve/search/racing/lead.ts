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

/**
 * In each setting, the preset that is best over `all` cases, by its mean score over `some` of them. What is
 * best on a few seeds is so by luck, and no measure of what runs there.
 *
 * @param all ids of cases, of each of which every preset has a score
 * @param some of them; of each setting at least one
 */
export function barsOf(
  presets: readonly CaseScores[],
  all: readonly string[],
  some: readonly string[] = all,
): BySetting {
  const means = (scores: CaseScores, cases: readonly string[]): BySetting =>
    meansBySetting(cases.map((id) => ({ id, score: scores[id] })));
  const overAll = presets.map((scores) => means(scores, all));
  const overSome = presets.map((scores) => means(scores, some));
  const settings = [...new Set(all.map(settingOf))];
  return Object.fromEntries(
    settings.map((setting) => {
      const bestMean = Math.max(...overAll.map((each) => each[setting]));
      const best = overAll.findIndex((each) => each[setting] === bestMean);
      return [setting, overSome[best][setting]];
    }),
  );
}

/** @param bars by setting; one that has none counts from 0 */
export function standingOf({ cases = [], error }: Evaluation, bars: BySetting): Standing {
  if (error !== undefined) return { score: FAILED_SCORE, leads: {}, cases: 0 };
  const means = meansBySetting(cases);
  const leads = Object.fromEntries(Object.keys(means).map((name) => [name, means[name] - (bars[name] ?? 0)]));
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
