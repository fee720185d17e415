/** One opinion on which instance a request should go to: a number for each candidate, higher is better. */

import type { Stateful } from '../../policy.ts';
import type { RoutingContext } from '../routingPolicy.ts';

export interface Scorer extends Stateful {
  readonly name: string;
  /** Whether it asks the router's observed view of caches. */
  readonly readsCaches: boolean;
  /** Whether its scores depend on nothing but what instances report: they hold until the next report. */
  readonly readsReportsAlone?: boolean;
  /** Fills `out[i]` for candidate i; scores lie in [0, 1] or are clamped to it. */
  score(context: RoutingContext, out: Float64Array): void;
  routed?(context: RoutingContext, instance: number): void;
  removed?(instance: number): void;
}

/**
 * Scales values to [0, 1] in place; with `inverted` the smallest gets 1. All equal gives 1 everywhere.
 */
export function minMax(values: Float64Array, count: number, inverted: boolean): void {
  let min = Infinity;
  let max = -Infinity;
  for (let i = 0; i < count; i++) {
    min = Math.min(min, values[i]);
    max = Math.max(max, values[i]);
  }
  for (let i = 0; i < count; i++) {
    values[i] = max === min ? 1 : (inverted ? max - values[i] : values[i] - min) / (max - min);
  }
}
