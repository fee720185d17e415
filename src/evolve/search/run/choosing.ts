/**
 * After the search: the best of train are scored on validation, the best of these is chosen, and the hidden
 * suite says what it is worth beside the presets. Nothing that the hidden suite says goes back into the
 * search.
 */

import type { PolicySlot } from '../../bundle/policyBundle.ts';
import type { Evaluation, Evaluator, SuiteName } from '../../fitness/evaluation.ts';
import { type Individual, ofManyKinds } from '../bundles/index.ts';
import { type BySetting, barsOf, bestOfEach, caseScoresOf, standingOf } from '../racing/index.ts';
import { affordable, type Budget, evaluateWithin, oneSeedEach, type Within } from './budget.ts';

/** Share of the finalists that may be of one kind. */
const OF_ONE_KIND = 1 / 3;
/**
 * Presets of each setting that finalists meet on validation, since each of them may be the best there.
 */
const RIVALS = 5;

export interface Chosen {
  readonly individual: Individual;
  readonly train: number;
  readonly validation: number;
  /** On validation, over the best preset of each setting there. */
  readonly leads: BySetting;
}

/** @param ranking the best first */
export function finalistsOf(
  ranking: readonly Individual[],
  count: number,
  slots: readonly PolicySlot[],
): Individual[] {
  return ofManyKinds(ranking, count, Math.ceil(OF_ONE_KIND * count), slots);
}

/**
 * @param finalists by their scores on train, the best first; not empty
 * @param budget leaves out seeds and finalists that do not fit into its share for validation
 */
export async function choose(
  finalists: readonly Individual[],
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
  budget?: Budget,
): Promise<{ readonly chosen: Chosen; readonly all: readonly Chosen[] }> {
  const within = { signal, budget, phase: 'validation' } as const;
  const asked = [...finalists, ...bestOfEach(presets, RIVALS)];
  const { evaluations, cases } = await onSuite(asked, 'validation', evaluator, within);
  const rivals = evaluations
    .slice(finalists.length)
    .filter((evaluation) => evaluation !== undefined && evaluation.error === undefined)
    .map((evaluation) => caseScoresOf(evaluation as Evaluation));
  const bars = rivals.length === 0 ? {} : barsOf(rivals, cases);
  const all = finalists.flatMap((individual, i): Chosen[] => {
    const evaluation = evaluations[i];
    if (evaluation === undefined) return [];
    const { score, leads } = standingOf(evaluation, bars);
    return [{ individual, train: individual.score, validation: score, leads }];
  });
  return { chosen: all.reduce((a, b) => (b.validation > a.validation ? b : a)), all };
}

/** The first of them runs in any case, if need be on one seed of each setting. */
async function onSuite(
  asked: readonly Individual[],
  suite: SuiteName,
  evaluator: Evaluator,
  within: Within,
): Promise<{ readonly evaluations: readonly (Evaluation | undefined)[]; readonly cases: readonly string[] }> {
  const { budget, signal } = within;
  const all = evaluator.caseIds(suite);
  const bundles = asked.map(({ bundle }) => bundle);
  if (budget === undefined) {
    return { evaluations: await evaluator.evaluate(bundles, suite, signal), cases: all };
  }
  const one = oneSeedEach(all);
  const [first] = await budget.measure(2 * one.length, () =>
    evaluator.evaluate(bundles.slice(0, 1), suite, signal, one),
  );
  const cases = affordable(all, bundles.length, within);
  if (cases !== undefined) {
    const evaluations = await evaluateWithin(evaluator, bundles, suite, within, cases);
    if (evaluations[0] !== undefined) return { evaluations, cases };
  }
  const rest = await evaluateWithin(evaluator, bundles.slice(1), suite, within, one);
  return { evaluations: [first, ...rest], cases: one };
}

export interface Judged {
  readonly individual: Individual;
  readonly hidden: Evaluation;
}

/**
 * The chosen one and the presets on the hidden suite, in this order.
 * @param budget leaves out seeds and presets that do not fit into what is left of it
 */
export async function judge(
  chosen: Individual,
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
  budget?: Budget,
): Promise<readonly Judged[]> {
  const all = [chosen, ...presets.filter(({ id }) => id !== chosen.id)];
  const within = { signal, budget, phase: 'judging' } as const;
  const { evaluations } = await onSuite(all, 'hidden', evaluator, within);
  return all.flatMap((individual, i) => {
    const hidden = evaluations[i];
    return hidden === undefined ? [] : [{ individual, hidden }];
  });
}
