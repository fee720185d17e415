/** Generation 0: the presets on train, and what they are the measure of. */

import { configError } from '../../../runtime/errors.ts';
import type { PolicyBundle } from '../../bundle/policyBundle.ts';
import type { Evaluator } from '../../fitness/evaluation.ts';
import { type Individual, individualOf } from '../bundles/index.ts';
import {
  barsOf,
  behaviourOf,
  bestOfEach,
  caseScoresOf,
  type Raced,
  type Rung,
  rungsOf,
  standingOf,
} from '../racing/index.ts';
import { newBranch, newIslands } from '../selection/index.ts';
import { axesOf, referenceOf } from './measures.ts';
import { newNumeric } from './numericEmitter.ts';
import { type SearchPlan, type SearchState, STATE_VERSION } from './state.ts';

/** Shares of a generation; what is left goes to variation from the archive. */
export const shares = { cma: 0.25, strategy: 0.15, pareto: 0.1, branch: 0.1, crossing: 0.15 } as const;

export function shareOf({ population }: SearchPlan, share: number): number {
  return Math.max(2, Math.round(share * population));
}

/** Presets of each setting that run on more seeds: any of them may be the best there. */
const RIVALS = 6;

/**
 * A race in which nobody is lost that may be the best preset of a setting. What is best on a rung's cases is
 * the bar of that rung.
 */
async function racePresets(
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  signal?: AbortSignal,
): Promise<{ readonly rungs: readonly Rung[]; readonly raced: readonly Raced[] }> {
  const rungs: Rung[] = [];
  const raced: Raced[] = [];
  let running: readonly number[] = presets.map((_, i) => i);
  for (const cases of rungsOf(evaluator.caseIds('train'))) {
    const asked = running.map((i) => presets[i]);
    const evaluations = await evaluator.evaluate(asked, 'train', signal, cases);
    const whole = evaluations.filter(({ error }) => error === undefined);
    if (whole.length === 0) {
      const problem = evaluations[0]?.error?.message ?? 'there are none';
      throw configError('presets', `do not run (${problem})`, 'Begin with one policy that runs.');
    }
    const bars = barsOf(whole.map(caseScoresOf), cases);
    rungs.push({ cases, bars });
    for (const [place, i] of running.entries()) {
      const evaluation = evaluations[place];
      const behaviour = raced[i]?.behaviour ?? behaviourOf(evaluation);
      raced[i] = { evaluation, ...standingOf(evaluation, bars), behaviour, isEcho: false };
    }
    const standings = running.map((i) => ({ i, leads: raced[i].leads }));
    running = bestOfEach(standings, RIVALS).map(({ i }) => i);
  }
  return { rungs, raced };
}

/**
 * A state that holds no individual yet, and the presets.
 * @throws TKV_CONFIG where none of them runs
 */
export async function beginState(
  plan: SearchPlan,
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  signal?: AbortSignal,
): Promise<{ readonly state: SearchState; readonly individuals: readonly Individual[] }> {
  const { rungs, raced } = await racePresets(presets, evaluator, signal);
  const individuals = presets.map((bundle, i) => {
    const candidate = { bundle, origin: 'preset', parents: [], changes: [] } as const;
    return individualOf(candidate, 0, raced[i].evaluation, raced[i]);
  });
  const ran = individuals.filter(({ error }) => error === undefined);
  const best = ran.reduce((a, b) => (b.score > a.score ? b : a));
  const state: SearchState = {
    version: STATE_VERSION,
    plan,
    objectiveNames: evaluator.objectiveNames,
    rungs,
    generation: 0,
    evaluations: presets.length,
    individuals: [],
    history: [],
    numeric: [
      newNumeric('cma', Math.max(4, shareOf(plan, shares.cma))),
      newNumeric('strategy', shareOf(plan, shares.strategy)),
    ],
    starts: {},
    archive: newIslands(axesOf(plan, ran), plan.islands),
    front: [],
    branch: newBranch({ id: best.id, score: best.score }, plan.tolerance),
    reference: referenceOf(ran),
  };
  return { state, individuals };
}
