/**
 * After the search: the best of train are scored on validation, the best of these is chosen, and the hidden
 * suite says what it is worth beside the presets. Nothing that the hidden suite says goes back into the
 * search.
 */

import type { PolicySlot } from '../../bundle/policyBundle.ts';
import type { Evaluation, Evaluator } from '../../fitness/evaluation.ts';
import { type Individual, ofManyKinds } from '../bundles/index.ts';
import { type BySetting, barsOf, bestOfEach, caseScoresOf, standingOf } from '../racing/index.ts';

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

/** @param finalists by their scores on train, the best first; not empty */
export async function choose(
  finalists: readonly Individual[],
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
): Promise<{ readonly chosen: Chosen; readonly all: readonly Chosen[] }> {
  const asked = [...finalists, ...bestOfEach(presets, RIVALS)];
  const evaluations = await evaluator.evaluate(
    asked.map(({ bundle }) => bundle),
    'validation',
    signal,
  );
  const rivals = evaluations.slice(finalists.length).filter(({ error }) => error === undefined);
  const bars = barsOf(rivals.map(caseScoresOf), evaluator.caseIds('validation'));
  const all = finalists.map((individual, i): Chosen => {
    const { score, leads } = standingOf(evaluations[i], bars);
    return { individual, train: individual.score, validation: score, leads };
  });
  return { chosen: all.reduce((a, b) => (b.validation > a.validation ? b : a)), all };
}

export interface Judged {
  readonly individual: Individual;
  readonly hidden: Evaluation;
}

/** The chosen one and the presets on the hidden suite, in this order. */
export async function judge(
  chosen: Individual,
  presets: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
): Promise<readonly Judged[]> {
  const all = [chosen, ...presets.filter(({ id }) => id !== chosen.id)];
  const evaluations = await evaluator.evaluate(
    all.map(({ bundle }) => bundle),
    'hidden',
    signal,
  );
  return all.map((individual, i) => ({ individual, hidden: evaluations[i] }));
}
