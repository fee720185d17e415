/**
 * A (mu, lambda) evolution strategy with a step size for each coordinate that evolves along with it:
 * H.-G. Beyer and H.-P. Schwefel, "Evolution Strategies: A Comprehensive Introduction" (2002), with
 * intermediate recombination of step sizes and discrete recombination of coordinates. Parents die with their
 * generation, which lets it walk out of a local optimum; discrete recombination suits choices and integers.
 * It looks for the highest value in the unit cube.
 */

import * as elementary from '../../../sim/random/elementary.ts';
import type { GoRandom } from '../../../sim/random/goRand.ts';

interface StrategyParent {
  readonly x: readonly number[];
  /** Step size of each coordinate. */
  readonly steps: readonly number[];
}

export interface StrategyState {
  generation: number;
  parents: readonly StrategyParent[];
  /** The points that were drawn last, of which `tellStrategy` takes the next parents. */
  offspring: readonly StrategyParent[];
  /** How many parents there are (mu), and how many are drawn (lambda). */
  readonly mu: number;
  readonly lambda: number;
  /** Least step of each coordinate. */
  readonly leastDeviation: readonly number[];
}

const LEAST_STEP = 1e-4;
const GREATEST_STEP = 0.5;

export function newStrategy(
  x: readonly number[],
  step: number,
  lambda: number,
  leastDeviation?: readonly number[],
): StrategyState {
  return {
    generation: 0,
    parents: [{ x: [...x], steps: x.map(() => step) }],
    offspring: [],
    mu: Math.max(1, Math.floor(lambda / 4)),
    lambda,
    leastDeviation: leastDeviation ?? x.map(() => 0),
  };
}

/** `lambda` points of the cube; a coordinate that leaves it is reflected at the face. */
export function askStrategy(state: StrategyState, random: GoRandom): number[][] {
  const n = state.leastDeviation.length;
  const tauAll = 1 / Math.sqrt(2 * n);
  const tauEach = 1 / Math.sqrt(2 * Math.sqrt(n));
  const { parents } = state;
  state.offspring = Array.from({ length: state.lambda }, () => {
    const a = parents[random.intn(parents.length)];
    const b = parents[random.intn(parents.length)];
    const common = tauAll * random.normFloat64();
    const steps = a.steps.map((step, i) => {
      const grown = ((step + b.steps[i]) / 2) * elementary.exp(common + tauEach * random.normFloat64());
      return Math.min(GREATEST_STEP, Math.max(LEAST_STEP, state.leastDeviation[i], grown));
    });
    const x = a.x.map((value, i) => {
      const from = random.intn(2) === 0 ? value : b.x[i];
      return reflect(from + steps[i] * random.normFloat64());
    });
    return { x, steps };
  });
  return state.offspring.map(({ x }) => [...x]);
}

/** @param values of the points that were asked for, more is better */
export function tellStrategy(state: StrategyState, values: readonly number[]): void {
  const order = values.map((_, i) => i).sort((a, b) => values[b] - values[a] || a - b);
  state.parents = order.slice(0, state.mu).map((i) => state.offspring[i]);
  state.generation++;
}

/** Into [0, 1] by mirrors at both ends. */
function reflect(x: number): number {
  const folded = x - 2 * Math.floor(x / 2);
  return folded > 1 ? 2 - folded : folded;
}

/** Greatest step of a parent's coordinate. */
export function strategySpread(state: StrategyState): number {
  return Math.max(...state.parents.flatMap(({ steps }) => steps));
}
