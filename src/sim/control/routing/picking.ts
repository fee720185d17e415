/** How the best of several candidates is taken. */

import type { GoRandom, SourceState } from '../../random/index.ts';
import type { PlainState, PolicyWorld } from '../policy.ts';

export const tieNames = ['lowest', 'random'] as const;

/**
 * Takes the highest score. Equal ones go to the lowest instance, or with `random` to a draw of `Intn` from
 * the router's stream, as upstream does; without a tie nothing is drawn.
 */
export class Picker {
  readonly #random: GoRandom | null;
  readonly #tied: number[] = [];

  constructor(random: GoRandom | null) {
    this.#random = random;
  }

  static of(ties: string, world: PolicyWorld): Picker {
    return new Picker(ties === 'random' ? world.stream('router') : null);
  }

  /** Index of the highest of the first `count` scores; -Infinity is out of the question unless all are. */
  highest(scores: ArrayLike<number>, count: number): number {
    let best = 0;
    for (let i = 1; i < count; i++) if (scores[i] > scores[best]) best = i;
    if (this.#random === null) return best;
    this.#tied.length = 0;
    for (let i = best; i < count; i++) if (scores[i] === scores[best]) this.#tied.push(i);
    return this.#tied.length === 1 ? best : this.#tied[this.#random.intn(this.#tied.length)];
  }

  snapshot(): PlainState {
    return this.#random?.snapshot() ?? null;
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    if (state !== null) this.#random?.restore(state as SourceState);
  }
}
