/**
 * How long the engine takes to compute tokens, learnt from the steps it has made: of each step its tokens,
 * the positions over which they attend, and how long it took. An input of `loadOrRecompute`.
 */

import type { StateVisitor } from '../snapshot/index.ts';
import type { ComputeEstimate } from './loadOrRecompute.ts';
import { RecentFit } from './recentFit.ts';

/** Of a step's weight, when another one comes: steps of the last few seconds count. */
const KEEP = 0.98;

export class ComputePace {
  readonly #fit: RecentFit = new RecentFit(3, KEEP);

  /**
   * A step was computed.
   * @param tokens over all its requests
   * @param squares the sum of `squaresOf(start, end)` over its requests, which compute tokens start to end
   */
  stepEnded(tokens: number, squares: number, durationUs: number): void {
    this.#fit.add([tokens, 1, squares], Math.max(1, durationUs));
  }

  visitState(visitor: StateVisitor): void {
    this.#fit.visitState(visitor);
  }

  /** @returns undefined before the first step. @param stepTokens most tokens of one step */
  estimate(stepTokens: number): ComputeEstimate | undefined {
    const weights = this.#fit.weights();
    if (weights === null) return undefined;
    const [usPerToken, usPerStep, usPerTokenSquared] = weights;
    return { usPerToken, usPerTokenSquared, usPerStep, stepTokens };
  }
}
