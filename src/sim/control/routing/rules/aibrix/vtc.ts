/** AIBrix's token counter of tenants, its basic variant. */

import type { GoRandom, SourceState } from '../../../../random/index.ts';
import type { InstanceSnapshot } from '../../../instances.ts';
import type { Outcome } from '../../../outcome.ts';
import type { PlainState, Stateful } from '../../../policy.ts';
import { RecentAmounts } from '../../memory/recent.ts';
import type { Picker } from '../../picking.ts';
import type { RoutingContext } from '../../routingPolicy.ts';
import { ScoredRule, type Taken } from '../scoredRule.ts';

export interface VtcWeights {
  readonly fairness: number;
  readonly utilization: number;
  readonly promptWeight: number;
  readonly outputWeight: number;
  /** Requests in flight at which an instance counts as full. */
  readonly maxLoad: number;
  /** Least width of a step of the tenant's tokens from one instance to the next. */
  readonly minTokens: number;
  readonly jitter: number;
}

/**
 * The least wf x |i - clamp(tokens / bucket, 0, n - 1)| + wu x min(in flight / maxLoad, 1) + U(0, jitter) for
 * the i-th instance. tokens: of the tenant's requests that ended in the window, weighted; bucket: halfway
 * between the least and the most of all tenants, at least `minTokens`. The jitter comes from the router's
 * stream under the key of the simulation.
 */
export class AibrixVtc extends ScoredRule {
  override readonly name: string = 'aibrix-vtc-basic';
  readonly #weights: VtcWeights;
  readonly #tokens: RecentAmounts;
  readonly #random: GoRandom;

  constructor(weights: VtcWeights, windowUs: number, picker: Picker, random: GoRandom) {
    const tokens = new RecentAmounts(windowUs);
    super(picker, [tokens, ofStream(random)]);
    this.#weights = weights;
    this.#tokens = tokens;
    this.#random = random;
  }

  protected override take({ request, candidates, router }: RoutingContext, scores: Float64Array): Taken {
    const { fairness, utilization, maxLoad, minTokens, jitter } = this.#weights;
    const all = this.#tokens.sums(router.nowUs);
    const middle = all.length === 0 ? 0 : (Math.min(...all) + Math.max(...all)) / 2;
    const place = this.#tokens.sum(request.tenantId, router.nowUs) / Math.max(minTokens, middle);
    const wanted = Math.min(candidates.length - 1, Math.max(0, place));
    const cost = ({ inFlight }: InstanceSnapshot, i: number): number =>
      fairness * Math.abs(i - wanted) +
      utilization * Math.min(inFlight / maxLoad, 1) +
      (jitter > 0 ? jitter * this.#random.float64() : 0);
    return { index: this.least(candidates, scores, cost), reason: 'fair place and load' };
  }

  completed({ request, outputTokens, nowUs }: Outcome): void {
    const { promptWeight, outputWeight } = this.#weights;
    const tokens = promptWeight * request.promptTokens + outputWeight * outputTokens;
    this.#tokens.add(request.tenantId, tokens, nowUs);
  }
}

function ofStream(random: GoRandom): Stateful {
  return {
    snapshot: (): PlainState => random.snapshot(),
    // the state is what `snapshot` made
    restore: (state) => random.restore(state as SourceState),
  };
}
