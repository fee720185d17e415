/** Generation 0: the presets on train, and what they are the measure of. */

import { configError } from '../../../runtime/errors.ts';
import type { PolicyBundle } from '../../bundle/policyBundle.ts';
import type { Evaluation, Evaluator } from '../../fitness/evaluation.ts';
import { type Individual, individualOf } from '../bundles/index.ts';
import {
  behaviourOf,
  bestOfEach,
  caseScoresOf,
  type Rung,
  rungsOf,
  rungsWithBars,
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

/** Presets of each setting that run on more seeds, since each of them may be the best there. */
const RIVALS = 6;

interface PresetRun {
  readonly evaluation: Evaluation;
  /** The last rung on which it ran. */
  readonly rung: number;
  readonly behaviour: string;
}

/** A race in which nobody is lost that may be the best preset of a setting. */
async function racePresets(
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  signal?: AbortSignal,
): Promise<{ readonly rungs: readonly Rung[]; readonly runs: readonly PresetRun[] }> {
  const cases = rungsOf(evaluator.caseIds('train'));
  const runs: PresetRun[] = [];
  let running: readonly number[] = presets.map((_, i) => i);
  let whole: readonly Evaluation[] = [];
  for (const [rung, ids] of cases.entries()) {
    const asked = running.map((i) => presets[i]);
    const evaluations = await evaluator.evaluate(asked, 'train', signal, ids);
    whole = evaluations.filter(({ error }) => error === undefined);
    if (whole.length === 0) {
      const problem = evaluations[0]?.error?.message ?? 'there are none';
      throw configError('presets', `do not run (${problem})`, 'Begin with one policy that runs.');
    }
    for (const [place, i] of running.entries()) {
      const evaluation = evaluations[place];
      runs[i] = { evaluation, rung, behaviour: runs[i]?.behaviour ?? behaviourOf(evaluation) };
    }
    const means = running.map((i) => ({ i, leads: standingOf(runs[i].evaluation, {}).leads }));
    running = bestOfEach(means, RIVALS).map(({ i }) => i);
  }
  return { rungs: rungsWithBars(cases, whole.map(caseScoresOf)), runs };
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
  const { rungs, runs } = await racePresets(presets, evaluator, signal);
  const standings = runs.map(({ evaluation, rung }) => standingOf(evaluation, rungs[rung].bars));
  const ranOnAll = ({ evaluation, rung }: PresetRun): boolean =>
    evaluation.error === undefined && rung === rungs.length - 1;
  const onAll = standings.filter((_, i) => ranOnAll(runs[i]));
  // few seeds may flatter who was stopped
  const most = Math.min(...onAll.map(({ score }) => score));
  const individuals = presets.map((bundle, i) => {
    const candidate = { bundle, origin: 'preset', parents: [], changes: [] } as const;
    const standing = standings[i];
    const score = ranOnAll(runs[i]) ? standing.score : Math.min(most, standing.score);
    return individualOf(candidate, 0, runs[i].evaluation, {
      ...standing,
      score,
      behaviour: runs[i].behaviour,
    });
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
