/**
 * Comparison of candidates with few simulations. The bar of a setting (a workload with a model of time) is the gain of
 * the best preset there. A candidate's lead is its gain minus the bar. Its score is mostly its smallest lead, so that
 * no workload pays for another: a preset scores 0 at most. Races stop weak candidates after a few seeds.
 */

import { configError } from '../../../runtime/errors.ts';
import type { PolicyBundle } from '../bundle/policyBundle.ts';
import { contentHash } from '../bundle/presets.ts';
import { type Evaluation, type Evaluator, meansBySetting, settingOf } from '../fitness/evaluation.ts';
import { FAILED_SCORE } from '../fitness/objectives.ts';

/** Score of each case by its id. */
type CaseScores = Readonly<Record<string, number>>;
export type BySetting = Readonly<Record<string, number>>;

/** Share of the smallest lead in the score. The rest is the mean lead, which orders candidates of equal smallest lead. */
const SMALLEST = 0.75;

interface Standing {
  readonly score: number;
  /** Lead over the best preset of each setting; empty where the evaluation failed. */
  readonly leads: BySetting;
  /** Number of cases behind the leads. */
  readonly cases: number;
}

export function caseScoresOf(evaluation: Evaluation): CaseScores {
  const { cases = [] } = evaluation;
  return Object.fromEntries(cases.map(({ id, score }) => [id, score]));
}

/**
 * The bar of each setting: the preset that is best over `all` cases, with its mean score over `some` of them. The best
 * preset on a few seeds owes its place to luck, so it would be a wrong bar.
 *
 * @param all ids of cases; every preset has a score in each
 * @param some ids among them, at least one of each setting
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

/** Score and leads of an evaluation. @param bars by setting; a setting without a bar has the bar 0 */
export function standingOf(evaluation: Evaluation, bars: BySetting): Standing {
  const { cases = [], error } = evaluation;
  if (error !== undefined) return { score: FAILED_SCORE, leads: {}, cases: 0 };
  if (cases.length === 0) {
    throw configError('evaluator', 'gives an evaluation without cases', 'Give each evaluation its cases.');
  }
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

/** For each setting a list by the lead there, the best first. Failed evaluations have no leads and are left out. */
function leadersOf<Each extends Led>(all: readonly Each[]): Each[][] {
  const ran = all.filter(({ leads }) => Object.keys(leads).length > 0);
  return Object.keys(ran[0]?.leads ?? {}).map((setting) =>
    [...ran].sort((a, b) => b.leads[setting] - a.leads[setting]),
  );
}

/** The first `count` of every setting, each once. */
export function bestOfEach<Each extends Led>(all: readonly Each[], count: number): Each[] {
  const kept = new Set(leadersOf(all).flatMap((ranked) => ranked.slice(0, count)));
  return all.filter((each) => kept.has(each));
}

// A race: all candidates run on a few seeds of every setting, the best third on twice as many, and so on. Most of the
// time goes to candidates that may become the best, and the best has run on all seeds.

/** Share of the candidates of a rung that go on to the next. */
const GOES_ON = 1 / 3;
/** Fewest candidates that go on: a single one would be left by chance. */
const LEAST = 2;
/** Fewest seeds of a setting on a rung before the last. */
const FIRST_SEEDS = 2;

/** Cases of a rung, and the bars measured on them. */
export interface Rung {
  readonly cases: readonly string[];
  readonly bars: BySetting;
}

interface Raced extends Standing {
  readonly evaluation: Evaluation;
  /** Digest of its scores on the first rung, '' where it failed. */
  readonly behaviour: string;
  /** Whether the race stopped it since another bundle of the same behaviour is known or runs already. */
  readonly isEcho: boolean;
}

/**
 * Digest of the scores of an evaluation, '' for a failed one. Scores that are equal to the last bit on several
 * simulations come of equal decisions, which are common: many changes of a number or a term decide nothing.
 */
export function behaviourOf(evaluation: Evaluation): string {
  const { cases = [], error } = evaluation;
  return error === undefined ? contentHash(cases.map(({ score }) => score)) : '';
}

/** Cases of each rung. The last rung has all cases, each rung before it half the seeds of every setting. */
export function rungsOf(cases: readonly string[]): string[][] {
  const bySetting = new Map<string, string[]>();
  for (const id of cases) bySetting.set(settingOf(id), [...(bySetting.get(settingOf(id)) ?? []), id]);
  const most = Math.max(...[...bySetting.values()].map(({ length }) => length));
  const rungs: string[][] = [[...cases]];
  for (let seeds = Math.floor(most / 2); seeds >= FIRST_SEEDS; seeds = Math.floor(seeds / 2)) {
    const first = new Set([...bySetting.values()].flatMap((ids) => ids.slice(0, seeds)));
    rungs.unshift(cases.filter((id) => first.has(id)));
  }
  return rungs;
}

/** Rungs with their bars. @param cases of each rung @param presets scores on all cases of the last rung */
export function rungsWithBars(cases: readonly (readonly string[])[], presets: readonly CaseScores[]): Rung[] {
  const all = cases[cases.length - 1];
  return cases.map((some) => ({ cases: some, bars: barsOf(presets, all, some) }));
}

/** The candidates that a rung stopped and that went on, and the lowest score among the latter. */
interface Cut {
  readonly stopped: readonly number[];
  readonly wentOn: readonly number[];
  readonly lastScore: number;
}

/**
 * Races bundles over the rungs. A stopped bundle gets a score below all bundles that went on, since few seeds may
 * flatter it. An echo has its standing of the first rung; the caller may know a better one.
 *
 * @param known behaviours on the first rung; a bundle with one of them is an echo and goes no further
 * @returns standings in the order of the bundles
 */
export async function race(
  bundles: readonly PolicyBundle[],
  rungs: readonly Rung[],
  evaluator: Evaluator,
  known: ReadonlySet<string>,
  signal?: AbortSignal,
): Promise<Raced[]> {
  const seen = new Set(known);
  const raced: Raced[] = new Array(bundles.length);
  const cuts: Cut[] = [];
  let running = bundles.map((_, i) => i);
  for (const [at, { cases, bars }] of rungs.entries()) {
    const asked = running.map((i) => bundles[i]);
    const evaluations = await evaluator.evaluate(asked, 'train', signal, cases);
    for (const [place, i] of running.entries()) {
      const evaluation = evaluations[place];
      const behaviour = raced[i]?.behaviour ?? behaviourOf(evaluation);
      const isEcho = at === 0 && seen.has(behaviour);
      if (behaviour !== '') seen.add(behaviour);
      raced[i] = { evaluation, ...standingOf(evaluation, bars), behaviour, isEcho };
    }
    const ran = running.filter((i) => raced[i].evaluation.error === undefined && !raced[i].isEcho);
    ran.sort((a, b) => raced[b].score - raced[a].score || a - b);
    if (at === rungs.length - 1 || ran.length === 0) break;
    const count = Math.max(LEAST, Math.ceil(GOES_ON * ran.length));
    const wentOn = ran.slice(0, count);
    const lastScore = raced[wentOn[wentOn.length - 1]].score;
    cuts.push({ stopped: ran.slice(count), wentOn, lastScore });
    running = wentOn.sort((a, b) => a - b);
  }
  for (const { stopped, wentOn, lastScore } of cuts.reverse()) {
    const kept = wentOn.filter((i) => raced[i].evaluation.error === undefined);
    const shift = Math.min(0, ...kept.map((i) => raced[i].score - lastScore));
    for (const i of stopped) raced[i] = { ...raced[i], score: raced[i].score + shift };
  }
  return raced;
}
