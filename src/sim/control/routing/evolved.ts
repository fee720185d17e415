/**
 * The published evolved rule over weighted scorers (SkyDiscover, `blis_router`). Let p be the first candidate
 * with the highest score of the first scorer, if that is above 0.1, and d its requests in flight above the
 * least of all. With d > 0 the first weight becomes w0 / (1 + 0.6 d) and the second 1 less that; the others
 * stay. From the weighted sum goes 0.5 x (u - 0.9) / 0.1 where the KV utilisation u is above 0.9; to it comes
 * 0.01 / (1 + in flight). Prefix affinity does not hold on to an instance that is crowded now.
 */

import { kvUtilization } from '../admission/index.ts';
import type { RoutingContext } from './routingPolicy.ts';
import { Weighted } from './weighted.ts';

const PREFIX_SCORE_MIN = 0.1;
const DECAY = 0.6;

export class Evolved extends Weighted {
  override readonly name: string = 'evolved';
  /** KV utilisation, whatever the scorers are. */
  override readonly readsReports: boolean = true;

  protected override sum({ candidates }: RoutingContext, scores: Float64Array): void {
    const { parts } = this;
    const weights = parts.map(({ weight }) => weight);
    const prefix = parts[0].values;
    let least = Infinity;
    let best = 0;
    for (let i = 0; i < candidates.length; i++) {
      least = Math.min(least, candidates[i].inFlight);
      if (prefix[i] > prefix[best]) best = i;
    }
    const crowded = candidates[best].inFlight - least;
    if (prefix[best] > PREFIX_SCORE_MIN && parts.length >= 2 && crowded > 0) {
      weights[0] = parts[0].weight * (1 / (1 + DECAY * crowded));
      weights[1] = 1 - weights[0];
    }
    for (let i = 0; i < candidates.length; i++) {
      let sum = 0;
      for (let part = 0; part < parts.length; part++) sum += parts[part].values[i] * weights[part];
      const utilization = kvUtilization(candidates[i]);
      if (utilization > 0.9) sum -= (0.5 * (utilization - 0.9)) / 0.1;
      scores[i] = sum + 0.01 / (1 + candidates[i].inFlight);
    }
  }
}
