/** Rules of AIBrix's gateway. "Running" is there what the gateway has in flight on a pod, as it is here. */

import type { GoRandom, SourceState } from '../../../random/index.ts';
import { kvUtilization } from '../../admission/index.ts';
import type { InstanceSnapshot } from '../../instances.ts';
import type { Outcome } from '../../outcome.ts';
import type { PlainState, Stateful } from '../../policy.ts';
import { RecentAmounts } from '../memory/recent.ts';
import type { Picker } from '../picking.ts';
import type { RoutingContext } from '../routingPolicy.ts';
import { RememberingRule } from './rememberingRule.ts';
import { inFlightOf, ScoredRule, type Taken } from './scoredRule.ts';

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

/**
 * Two costs, of which each is the least. Prefill: (100 - match %) x 0.1 + f / max f. Decode:
 * (f / max f + 1 - t / max t) / (free / max free), with t the output tokens of the requests that ended there
 * in the window and free the share of HBM that no request holds. An instance that does both has the sum.
 * Maxima of 0 count as 1.
 */
export class AibrixPd extends RememberingRule {
  override readonly name: string = 'aibrix-pd';
  readonly #output: RecentAmounts;

  constructor(windowUs: number, picker: Picker, memoryBlocks: number) {
    const output = new RecentAmounts(windowUs);
    super(picker, memoryBlocks, [output]);
    this.#output = output;
  }

  protected override take(context: RoutingContext, scores: Float64Array): Taken {
    const { request, candidates, router } = context;
    const matches = this.matches(context);
    const output = candidates.map(({ instance }) => this.#output.sum(instance, router.nowUs));
    const free = candidates.map((instance) => Math.max(FULL, 1 - kvUtilization(instance)));
    const mostInFlight = Math.max(...candidates.map(inFlightOf)) || 1;
    const mostOutput = Math.max(...output) || 1;
    const mostFree = Math.max(...free);
    const cost = ({ role, inFlight }: InstanceSnapshot, i: number): number => {
      const load = inFlight / mostInFlight;
      const match = (100 * matches[i]) / Math.max(1, request.promptBlocks);
      const prefill = (100 - match) * 0.1 + load;
      const decode = (load + 1 - output[i] / mostOutput) / (free[i] / mostFree);
      return (role === 'decode' ? 0 : prefill) + (role === 'prefill' ? 0 : decode);
    };
    return { index: this.least(candidates, scores, cost), reason: 'least cost' };
  }

  completed({ instance, outputTokens, nowUs }: Outcome): void {
    this.#output.add(instance, outputTokens, nowUs);
  }
}

/** Free share of an instance that is full, so that a cost stays finite. */
const FULL = 1e-6;

function ofStream(random: GoRandom): Stateful {
  return {
    snapshot: (): PlainState => random.snapshot(),
    // the state is what `snapshot` made
    restore: (state) => random.restore(state as SourceState),
  };
}
