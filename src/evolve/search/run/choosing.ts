/**
 * After the search: the best of train are scored on validation, the best of these is chosen, and the hidden
 * suite says what it is worth beside the presets. Nothing that the hidden suite says goes back into the
 * search.
 */

import type { Evaluation, Evaluator } from '../../fitness/evaluation.ts';
import type { Individual } from '../bundles/index.ts';

export interface Chosen {
  readonly individual: Individual;
  readonly train: number;
  readonly validation: number;
}

/** @param finalists by their scores on train, the best first; not empty */
export async function choose(
  finalists: readonly Individual[],
  evaluator: Evaluator,
  signal?: AbortSignal,
): Promise<{ readonly chosen: Chosen; readonly all: readonly Chosen[] }> {
  const evaluations = await evaluator.evaluate(
    finalists.map(({ bundle }) => bundle),
    'validation',
    signal,
  );
  const all = finalists.map((individual, i): Chosen => {
    return { individual, train: individual.score, validation: evaluations[i].score };
  });
  const ran = all.filter((_, i) => evaluations[i].error === undefined);
  const chosen = (ran.length > 0 ? ran : all).reduce((a, b) => (b.validation > a.validation ? b : a));
  return { chosen, all };
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
