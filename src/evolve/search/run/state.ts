/**
 * All that a search knows, as plain data. It is written after each generation and read again after a kill;
 * numbers survive JSON to the last bit, and streams of random numbers are named by seed, generation and use,
 * so that a search that goes on gives what one that was never interrupted gives.
 */

import { parseJson } from '../../../runtime/boundedJson.ts';
import { configError, type TierKVError } from '../../../runtime/errors.ts';
import type { PolicySlot } from '../../bundle/policyBundle.ts';
import type { Individual } from '../bundles/index.ts';
import type { Rung } from '../racing/index.ts';
import type { BranchState, IslandsState } from '../selection/index.ts';
import type { NumericState } from './numericEmitter.ts';

export const STATE_VERSION = 4;

export interface SearchPlan {
  readonly seed: number;
  /** Candidates of a generation. */
  readonly population: number;
  readonly slots: readonly PolicySlot[];
  readonly islands: number;
  /** Generations between migrations. */
  readonly migrateEvery: number;
  /** Metrics that divide the archive. `policy_nodes` is the size of a bundle. */
  readonly features: readonly string[];
  readonly bins: number;
  /** Worse steps in a row that the restart branch goes along with. */
  readonly tolerance: number;
  /** Hash of all that scores rest on: workloads, baseline, objectives, tierkv itself. */
  readonly measured?: string;
}

/** What one generation came to. */
export interface GenerationRecord {
  readonly generation: number;
  /** Evaluations since the start; what was known already is not counted. */
  readonly evaluations: number;
  readonly failures: number;
  /** Best score so far of those that ran on all cases, and of this generation. */
  readonly best: number;
  readonly bestOfGeneration: number;
  readonly medianOfGeneration: number;
  /** Volume that the Pareto front covers above the reference, null over more than four objectives. */
  readonly hypervolume: number | null;
  readonly qdScore: number;
  readonly filledCells: number;
}

export interface SearchState {
  readonly version: number;
  readonly plan: SearchPlan;
  readonly objectiveNames: readonly string[];
  /** Cases of train on which candidates race, and the best preset of each setting on them. */
  readonly rungs: readonly Rung[];
  generation: number;
  evaluations: number;
  /** All that were evaluated, in the order in which they were. */
  readonly individuals: Individual[];
  readonly history: GenerationRecord[];
  readonly numeric: NumericState[];
  /** How often each structure of bundles was started on by those. */
  readonly starts: Record<string, number>;
  readonly archive: IslandsState;
  /** Ids of the population from which the Pareto emitter draws, the best first. */
  front: string[];
  branch: BranchState;
  /** Below it a point covers no volume. */
  readonly reference: readonly number[];
}

/**
 * The state of a text that `JSON.stringify` of a state gave.
 * @throws TKV_CONFIG where it is none, of another version, or of another plan than `plan`
 */
export function readState(text: string, plan: SearchPlan, field: string): SearchState {
  const remedy = 'Give the directory of a search, or start a new one in another.';
  const error = (problem: string): TierKVError => configError(field, problem, remedy);
  const state = parseJson(text, error, Number.POSITIVE_INFINITY, 'is no JSON') as SearchState;
  if (state?.version !== STATE_VERSION || !Array.isArray(state.individuals)) {
    const remedy = 'Start a new search in another directory.';
    throw configError(field, `holds no state of version ${STATE_VERSION}`, remedy);
  }
  for (const name of Object.keys(plan) as (keyof SearchPlan)[]) {
    const [before, now] = [JSON.stringify(state.plan[name]), JSON.stringify(plan[name])];
    if (before === now) continue;
    if (name === 'measured') {
      const what = 'has other workloads, another baseline or other objectives than when the search began';
      const remedy =
        'Give back the files of the plan as they were, or start a new search in another directory.';
      throw configError('plan', `${what}, or tierkv itself is another one`, remedy);
    }
    throw configError(name, `is ${now}, and was ${before} when the search began`, 'Give it the same again.');
  }
  return state;
}
