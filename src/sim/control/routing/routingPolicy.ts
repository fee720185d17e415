/**
 * The third stage: which instance takes a request. A policy filters, scores and picks; the router makes the
 * record of it.
 */

import type { StateVisitor } from '../../../runtime/snapshot.ts';
import * as elementary from '../../random/elementary.ts';
import type { GoRandom } from '../../random/goRand.ts';
import {
  type FilteredOut,
  type InstanceSnapshot,
  type NamedPolicy,
  type PolicyWorld,
  type RequestPriority,
  type RequestView,
  visitStream,
} from '../policy.ts';
import type { RouterState } from '../routerState.ts';

export interface RoutingContext {
  readonly request: RequestView;
  readonly priority: RequestPriority;
  /** At least one, in order of their numbers. */
  readonly candidates: readonly InstanceSnapshot[];
  readonly router: RouterState;
  /**
   * Grows with each report that the router reads: the same candidates with the same number have the same
   * reported signals. Left out where reports are not counted.
   */
  readonly reports?: number;
}

/** One weighted part of the scores, by candidate. */
export interface ScorePart {
  readonly name: string;
  readonly weight: number;
  /** In [0, 1] where the policy clamps; before the weight. */
  readonly values: ArrayLike<number>;
}

export interface RoutingChoice {
  /** Index in the candidates. */
  readonly index: number;
  readonly reason: string;
  /** Scores by candidate, higher is better; null where the policy does not score. `-Infinity` for filtered ones. */
  readonly scores: ArrayLike<number> | null;
  readonly parts: readonly ScorePart[];
  readonly filteredOut: readonly FilteredOut[];
}

export interface RoutingPolicy extends NamedPolicy {
  /** Whether it asks the router's observed view of caches; the view is kept only for such policies. */
  readonly readsCaches: boolean;
  /** Whether it goes by what instances report, which is as old as the last report. */
  readonly readsReports: boolean;
  /**
   * Chooses; changes nothing but the policy's own counters and streams. What it returns holds until the next
   * call.
   */
  choose(context: RoutingContext): RoutingChoice;
  /** The request goes to the instance of that number. What the policy learns, it learns here. */
  routed?(context: RoutingContext, instance: number): void;
  /** The instance is gone, with all that it had cached. */
  removed?(instance: number): void;
}

//  How the best of several candidates is taken.

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

  visitState(visitor: StateVisitor): void {
    if (this.#random !== null) visitStream(visitor, this.#random);
  }
}

/** Index that a number in [0, 1) falls on, where each takes its share of the sum of the weights. */
export function drawnBy(weights: readonly number[], share: number): number {
  let left = share * weights.reduce((sum, weight) => sum + weight, 0);
  for (let i = 0; i < weights.length - 1; i++) {
    left -= weights[i];
    if (left < 0) return i;
  }
  return weights.length - 1;
}

const drawNames = ['weighted-random', 'softmax', 'two-choices'] as const;
export type DrawName = (typeof drawNames)[number];

/**
 * Draws in place of the highest score, from the router's stream under the key of the simulation:
 *
 *     weighted-random  the highest ln(U) / score, a U for each: a chance in proportion to the score
 *     softmax          a chance in proportion to exp(score / temperature)
 *     two-choices      the better of two different ones
 */
export class DrawingPicker extends Picker {
  readonly #draws: GoRandom;
  readonly #how: DrawName;
  readonly #temperature: number;

  constructor(how: DrawName, temperature: number, draws: GoRandom) {
    super(draws);
    this.#draws = draws;
    this.#how = how;
    this.#temperature = temperature;
  }

  override highest(scores: ArrayLike<number>, count: number): number {
    const all = Array.from({ length: count }, (_, i) => i);
    const open = all.filter((i) => scores[i] !== -Infinity);
    const from = open.length === 0 ? all : open;
    return from[this.#drawn(from.map((i) => scores[i]))];
  }

  #drawn(scores: readonly number[]): number {
    const count = scores.length;
    if (count === 1) return 0;
    if (this.#how === 'two-choices') {
      const first = this.#draws.intn(count);
      const other = this.#draws.intn(count - 1);
      const second = other < first ? other : other + 1;
      return scores[second] > scores[first] ? second : first;
    }
    if (this.#how === 'softmax') {
      const most = Math.max(...scores);
      const weights = scores.map((score) => elementary.exp((score - most) / this.#temperature));
      return drawnBy(weights, this.#draws.float64());
    }
    let best = 0;
    let bestKey = -Infinity;
    for (let i = 0; i < count; i++) {
      const drawn = elementary.log(this.#draws.float64());
      const key = scores[i] > 0 ? drawn / scores[i] : -Infinity;
      if (key > bestKey) {
        best = i;
        bestKey = key;
      }
    }
    return best;
  }
}
