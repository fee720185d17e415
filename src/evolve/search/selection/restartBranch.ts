/**
 * A branch that tolerates regressions: it walks from candidate to candidate and goes on from a worse one up
 * to `tolerance` times in a row; then it starts again from the best. A policy that needs two changes at once,
 * of which each alone does harm, is found by it and by no search that keeps only what got better.
 *
 * The state is plain data; `stepBranch` changes it in place.
 */

import type { Elite } from './mapElites.ts';

export interface BranchState {
  /** Worse steps in a row that it goes along with. */
  readonly tolerance: number;
  /** Where the next step starts. */
  current: Elite;
  /** Best of this branch since it last started. */
  best: Elite;
  /** Steps since the branch's best was found. */
  regressions: number;
  restarts: number;
}

export function newBranch(start: Elite, tolerance: number): BranchState {
  return { tolerance, current: start, best: start, regressions: 0, restarts: 0 };
}

/**
 * Goes on from what was tried.
 * @param tried the best of the step's candidates, undefined where all failed
 * @param restartAt where it starts again once its patience is over
 */
export function stepBranch(state: BranchState, tried: Elite | undefined, restartAt: Elite): void {
  if (tried !== undefined && tried.score > state.best.score) {
    state.best = tried;
    state.current = tried;
    state.regressions = 0;
    return;
  }
  state.regressions++;
  if (state.regressions <= state.tolerance) {
    if (tried !== undefined) state.current = tried;
    return;
  }
  state.best = restartAt;
  state.current = restartAt;
  state.regressions = 0;
  state.restarts++;
}
