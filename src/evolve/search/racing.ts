/**
 * How candidates are compared, and how little is simulated for it. In each setting, a workload with a model
 * of time, the bar is the best preset there. A candidate's lead is its gain minus the bar; its score is its
 * smallest lead over the settings. So no workload pays for another: presets score 0 at most, and a positive
 * score is above every preset in every setting. Races stop weak candidates after a few seeds.
 */

import { requireShapes } from '../../runtime/options.ts';
import type { PolicyBundle } from '../bundle/policyBundle.ts';
import { contentHash } from '../bundle/presets.ts';
import { type Evaluation, type Evaluator, meansBySetting, settingOf } from '../fitness/evaluation.ts';
import { FAILED_SCORE } from '../fitness/objectives.ts';

/** Score of each case by its id. */
export type CaseScores = Readonly<Record<string, number>>;
export type BySetting = Readonly<Record<string, number>>;

/** Share of the smallest lead in the score; the rest is the mean, which tells equal ones apart. */
const SMALLEST = 0.75;

interface Standing {
  readonly score: number;
  /** Lead over the best preset in each setting; none where the evaluation failed. */
  readonly leads: BySetting;
  /** How many cases they rest on. */
  readonly cases: number;
}

export function caseScoresOf(evaluation: Evaluation): CaseScores {
  requireShapes({ evaluation }, { evaluation: { policyId: 'text', score: 'number' } });
  const { cases = [] } = evaluation;
  return Object.fromEntries(cases.map(({ id, score }) => [id, score]));
}

/**
 * In each setting, the preset that is best over `all` cases, by its mean score over `some` of them. The
 * best preset on a few seeds owes it to luck, so it would be a wrong bar.
 *
 * @param all ids of cases; every preset has a score in each
 * @param some of them; of each setting at least one
 */
export function barsOf(
  presets: readonly CaseScores[],
  all: readonly string[],
  some: readonly string[] = all,
): BySetting {
  requireShapes({ presets, all, some }, { presets: ['object'], all: ['text'], some: 'array?' });
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

/** @param bars by setting; a setting without a bar counts from 0 */
export function standingOf(evaluation: Evaluation, bars: BySetting): Standing {
  requireShapes({ bars, evaluation }, { bars: 'object', evaluation: { policyId: 'text', score: 'number' } });
  const { cases = [], error } = evaluation;
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
  requireShapes({ all }, { all: [{ leads: 'object' }] });
  const ran = all.filter(({ leads }) => Object.keys(leads).length > 0);
  return Object.keys(ran[0]?.leads ?? {}).map((setting) =>
    [...ran].sort((a, b) => b.leads[setting] - a.leads[setting]),
  );
}

/** The `count` that lead most in any setting, each once. */
export function bestOfEach<Each extends Led>(all: readonly Each[], count: number): Each[] {
  requireShapes({ all, count }, { all: [{ leads: 'object' }], count: 'number' });
  const kept = new Set(leadersOf(all).flatMap((ranked) => ranked.slice(0, count)));
  return all.filter((each) => kept.has(each));
}

// A race: all candidates run on a few seeds of every setting, the leaders on twice as many, and so on. So most
// of the time goes to candidates that may become the best, and the best has run on all seeds.

/** Share of the candidates on one rung that go on to the next. */
const GOES_ON = 1 / 3;
/** At least this many candidates go on, so that a race never ends with one by chance. */
const LEAST = 2;
/** Seeds of a setting on the first rung, where the suite has twice as many. */
const FIRST_SEEDS = 2;

/** Cases of one rung, and the bars, measured on these cases. */
export interface Rung {
  readonly cases: readonly string[];
  readonly bars: BySetting;
}

export interface Raced extends Standing {
  readonly evaluation: Evaluation;
  /** Digest of its scores on the first rung, '' where it failed. */
  readonly behaviour: string;
  /** Whether it was stopped since one of the same behaviour is known, or runs already. */
  readonly isEcho: boolean;
}

/**
 * Scores that are equal to the last bit on several simulations come of equal decisions. Numbers that decide
 * nothing, and terms that never count, are common among children.
 */
export function behaviourOf(evaluation: Evaluation): string {
  requireShapes({ evaluation }, { evaluation: { policyId: 'text', score: 'number' } });
  const { cases = [], error } = evaluation;
  return error === undefined ? contentHash(cases.map(({ score }) => score)) : '';
}

/** Cases of each rung, by halving the seeds of every setting; the last rung has all. */
export function rungsOf(cases: readonly string[]): string[][] {
  requireShapes({ cases }, { cases: ['text'] });
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

/** Rungs of these cases with their bars. @param presets scores on all cases of the last rung */
export function rungsWithBars(cases: readonly (readonly string[])[], presets: readonly CaseScores[]): Rung[] {
  requireShapes({ cases, presets }, { cases: [['text']], presets: ['object'] });
  const all = cases[cases.length - 1];
  return cases.map((some) => ({ cases: some, bars: barsOf(presets, all, some) }));
}

/** The candidates that a rung stopped, and the score on it of the last candidate that went on. */
interface Cut {
  readonly stopped: readonly number[];
  readonly wentOn: readonly number[];
  readonly lastScore: number;
}

/**
 * Standings in the order of the bundles. A stopped bundle stands below all that went on: fewer seeds may
 * flatter it. An echo has the standing of the first rung; the caller may know a better one.
 *
 * @param known behaviours on the first rung; a bundle that shows one of them goes no further
 */
export async function race(
  bundles: readonly PolicyBundle[],
  rungs: readonly Rung[],
  evaluator: Evaluator,
  known: ReadonlySet<string>,
  signal?: AbortSignal,
): Promise<Raced[]> {
  requireShapes(
    { bundles, rungs, evaluator, known },
    {
      bundles: ['object'],
      rungs: [{ cases: 'array', bars: 'object' }],
      evaluator: { caseIds: 'function' },
      known: 'set',
    },
  );
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
