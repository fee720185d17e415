/** Generation 0: the presets on train, and what they are the measure of. */

import { configError } from '../../../runtime/errors.ts';
import type { PolicyBundle } from '../../bundle/policyBundle.ts';
import { type Evaluation, type Evaluator, settingOf } from '../../fitness/index.ts';
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
import { evaluateWithin, oneSeedEach, type Within } from './budget.ts';
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

/**
 * A race in which nobody is lost that may be the best preset of a setting.
 * @returns a hole in `runs` for each preset that the time left out
 */
async function racePresets(
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  within: Within,
): Promise<{ readonly rungs: readonly Rung[]; readonly runs: readonly (PresetRun | undefined)[] }> {
  const all = evaluator.caseIds('train');
  const first = await firstThatRuns(presets, evaluator, within);
  let cases = first === undefined ? rungsOf(all) : affordableRungs(all, presets.length, within);
  const runs: PresetRun[] = new Array(presets.length);
  let running: readonly number[] = presets.map((_, i) => i);
  let whole: readonly Evaluation[] = [];
  for (const [rung, ids] of cases.entries()) {
    const asked = running.map((i) => presets[i]);
    const evaluations = [...(await evaluateWithin(evaluator, asked, 'train', within, ids))];
    if (rung === 0 && first !== undefined && cases.length === 1 && ids.length === first.cases.length) {
      evaluations[first.index] ??= first.evaluation;
    }
    const ended = evaluations.filter((evaluation) => evaluation !== undefined);
    const ran = ended.filter(({ error }) => error === undefined);
    if (ran.length === 0 && rung > 0 && ended.length === 0) {
      cases = cases.slice(0, rung); // the time is up: the rung before is the last
      break;
    }
    whole = ran;
    if (whole.length === 0) {
      const problem = ended[0]?.error?.message ?? 'there are none';
      throw configError('presets', `do not run (${problem})`, 'Begin with one policy that runs.');
    }
    for (const [place, i] of running.entries()) {
      const evaluation = evaluations[place];
      if (evaluation === undefined) continue;
      runs[i] = { evaluation, rung, behaviour: runs[i]?.behaviour ?? behaviourOf(evaluation) };
    }
    const left = running.filter((_, place) => evaluations[place] !== undefined);
    const means = left.map((i) => ({ i, leads: standingOf(runs[i].evaluation, {}).leads }));
    running = bestOfEach(means, RIVALS).map(({ i }) => i);
  }
  return { rungs: rungsWithBars(cases, whole.map(caseScoresOf)), runs };
}

interface FirstRun {
  readonly index: number;
  readonly evaluation: Evaluation;
  readonly cases: readonly string[];
}

/**
 * With a budget: a preset on one seed of each setting, whatever the time. The next one tells what a case takes,
 * since the first also waits for the evaluator's threads to start.
 */
async function firstThatRuns(
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  within: Within,
): Promise<FirstRun | undefined> {
  const { budget, signal } = within;
  if (budget === undefined) return undefined;
  const cases = oneSeedEach(evaluator.caseIds('train'));
  let problem = 'there are none';
  for (const [index, bundle] of presets.entries()) {
    // the baseline runs beside it
    const [evaluation] = await budget.measure(2 * cases.length, () =>
      evaluator.evaluate([bundle], 'train', signal, cases),
    );
    if (evaluation.error === undefined) {
      const next = presets.slice(index + 1, index + 2);
      if (next.length > 0 && budget.leftMs('presets') > 0) {
        await budget.measure(cases.length, () => evaluateWithin(evaluator, next, 'train', within, cases));
      }
      return { index, evaluation, cases };
    }
    problem = evaluation.error.message;
  }
  throw configError('presets', `do not run (${problem})`, 'Begin with one policy that runs.');
}

/**
 * As many rungs as fit into the time: all presets run on the first, those that may be best somewhere on the
 * others. Where not even two seeds of each setting do, one seed, for as many presets as the time allows.
 */
function affordableRungs(all: readonly string[], presets: number, { budget, phase }: Within): string[][] {
  const ladder = rungsOf(all);
  const settings = new Set(all.map(settingOf)).size;
  const left = budget?.casesLeft(phase) ?? Infinity;
  const rivals = Math.min(presets, RIVALS * settings);
  const cost = (rungs: readonly string[][]): number =>
    presets * rungs[0].length + (1 + rivals) * rungs[rungs.length - 1].length;
  for (let count = ladder.length; count > 0; count--) {
    const rungs = ladder.slice(0, count);
    if (cost(rungs) <= left) return rungs;
  }
  return [[...oneSeedEach(all)]];
}

/**
 * A state that holds no individual yet, and the presets.
 * @throws TKV_CONFIG where none of them runs
 */
export async function beginState(
  plan: SearchPlan,
  presets: readonly PolicyBundle[],
  evaluator: Evaluator,
  within: Within,
): Promise<{ readonly state: SearchState; readonly individuals: readonly Individual[] }> {
  const raced = await racePresets(presets, evaluator, within);
  const { rungs } = raced;
  const bundles = presets.filter((_, i) => raced.runs[i] !== undefined);
  const runs = raced.runs.filter((run) => run !== undefined);
  const standings = runs.map(({ evaluation, rung }) => standingOf(evaluation, rungs[rung].bars));
  const ranOnAll = ({ evaluation, rung }: PresetRun): boolean =>
    evaluation.error === undefined && rung === rungs.length - 1;
  const onAll = standings.filter((_, i) => ranOnAll(runs[i]));
  // few seeds may flatter who was stopped
  const most = Math.min(...onAll.map(({ score }) => score));
  const individuals = bundles.map((bundle, i) => {
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
    evaluations: runs.length,
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
