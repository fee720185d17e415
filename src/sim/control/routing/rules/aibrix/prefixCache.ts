/** AIBrix's prefix-cache routing. "Running" is there what the gateway has in flight on a pod, as it is here. */

import type { Picker } from '../../picking.ts';
import type { RoutingContext } from '../../routingPolicy.ts';
import { RememberingRule } from '../rememberingRule.ts';
import { inFlightOf, type Taken } from '../scoredRule.ts';

/**
 * Where max - min in flight is above `imbalance`, the fewest in flight. Else the longest match among those
 * with no more in flight than mean + `deviations` x standard deviation, of equal matches the fewest in
 * flight; without one, the fewest in flight.
 */
export class AibrixPrefixCache extends RememberingRule {
  override readonly name: string = 'aibrix-prefix-cache';
  readonly #imbalance: number;
  readonly #deviations: number;

  constructor(imbalance: number, deviations: number, picker: Picker, memoryBlocks: number) {
    super(picker, memoryBlocks);
    this.#imbalance = imbalance;
    this.#deviations = deviations;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { candidates } = context;
    const loads = candidates.map(inFlightOf);
    if (Math.max(...loads) - Math.min(...loads) > this.#imbalance) {
      return { index: this.least(candidates, scores, inFlightOf), reason: 'unbalanced' };
    }
    const mean = loads.reduce((sum, load) => sum + load, 0) / loads.length;
    const variance = loads.reduce((sum, load) => sum + (load - mean) * (load - mean), 0) / loads.length;
    const most = mean + this.#deviations * Math.sqrt(variance);
    const matches = this.matches(context).map((blocks, i) => (loads[i] <= most ? blocks : 0));
    const longest = Math.max(...matches);
    const isLongest = (_: unknown, i: number): boolean => longest > 0 && matches[i] === longest;
    const index = this.least(candidates, scores, inFlightOf, isLongest);
    return { index, reason: longest > 0 ? 'longest match' : 'no match' };
  }
}
